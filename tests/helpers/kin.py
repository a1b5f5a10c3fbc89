"""Descendants of a process, seen from outside (Linux)."""

import time
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
