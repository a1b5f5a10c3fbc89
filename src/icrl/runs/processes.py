"""Processes that work for this one, and leave signals to it.

A signal often goes to a whole group of processes. The training process answers it, and ends the others in its time.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from multiprocessing import parent_process, resource_tracker
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize

_SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGUSR2}
_GLANCE = 0.5  # seconds between two looks at who the parent is


@contextmanager
def without_signals() -> Iterator[None]:
    """Processes that start within, and all that they start, are deaf to signals; there is no gap while they start."""
    resource_tracker.ensure_running()  # in here, because starting it sets SIGINT and SIGTERM free
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # inherited
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def killed_at_the_end(processes: Iterable[BaseProcess]) -> Callable[[], object]:
    """What kills `processes`, and does so at the end of the program at the latest: there multiprocessing would send
    SIGTERM, to which they are deaf, and wait for ever."""
    kept = list(processes)

    def kill() -> None:
        for process in kept:
            process.kill()

    return Finalize(None, kill, exitpriority=0)


def end_with_parent(code: int) -> None:
    """This process ends with `code` as soon as its parent does, however that ends."""
    parent = parent_process()
    assert parent

    def wait() -> None:
        parent.join()
        os._exit(code)

    threading.Thread(target=wait, daemon=True).start()


def end_with_launcher(code: int) -> None:
    """This process ends with `code` soon after the one that started it does, however that ends; for those that were
    not started by multiprocessing. Whether that one is gone already cannot be told."""
    launcher = os.getppid()

    def wait() -> None:
        while os.getppid() == launcher:  # another one takes orphans in
            time.sleep(_GLANCE)
        os._exit(code)

    threading.Thread(target=wait, daemon=True).start()


def start_quietly(process: BaseProcess) -> Callable[[], object]:
    """Start a process that is deaf to signals; returns what kills it, as `killed_at_the_end` does."""
    with without_signals():
        process.start()
    return killed_at_the_end([process])
