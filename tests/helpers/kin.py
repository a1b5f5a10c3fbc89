"""Descendants of a process, seen from outside (Linux)."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def family(pid: int) -> list[int]:
    """All descendants of `pid`."""
    threads = Path(f"/proc/{pid}/task").glob("*/children")
    children = [int(child) for thread in threads for child in thread.read_text().split()]
    return [each for child in children for each in (child, *family(child))]


def all_gone(pids: list[int]) -> bool:
    """Whether all processes end within ten seconds."""
    deadline = time.monotonic() + 10
    while any(is_alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not any(is_alive(pid) for pid in pids)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@contextmanager
def killed_parent(part: bytes, ready: Callable[[], bool]) -> Iterator[None]:
    """While the block runs and it is `ready`, kill the parent of the first process with `part` in its command line.
    Fails if there was none."""
    killed: list[int] = []
    ended = threading.Event()

    def kill() -> None:
        while not killed and not ended.wait(0.02):
            for pid in family(os.getpid()) if ready() else ():
                try:
                    command, status = Path(f"/proc/{pid}/cmdline").read_bytes(), Path(f"/proc/{pid}/stat").read_text()
                except OSError:
                    continue
                if part in command and not killed:
                    killed.append(int(status.rpartition(")")[2].split()[1]))
                    os.kill(killed[0], signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    assert killed
