"""Child processes that ignore signals, and standard outputs that are closed, not UTF-8 or without a reader.

A signal often reaches a whole process group. Only the training process handles it, and then ends its children.
"""

import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper
from multiprocessing import parent_process, resource_tracker
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize

_SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGUSR2}
_GLANCE = 0.5  # seconds between two checks of the parent


@contextmanager
def without_signals() -> Iterator[None]:
    """Context in which processes start with signals ignored, without a gap. Their own children inherit this."""
    resource_tracker.ensure_running()  # start it first, because this unblocks SIGINT and SIGTERM
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # inherited
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def killed_at_the_end(processes: Iterable[BaseProcess]) -> Callable[[], object]:
    """Function that kills `processes`; it also runs at the end of the program. Otherwise multiprocessing would send
    SIGTERM, which they ignore, and wait for ever."""
    kept = list(processes)

    def kill() -> None:
        for process in kept:
            process.kill()

    return Finalize(None, kill, exitpriority=0)


def start_quietly(process: BaseProcess) -> Callable[[], object]:
    """Start a process that ignores signals; returns the function that kills it, as `killed_at_the_end` does."""
    with without_signals():
        process.start()
    return killed_at_the_end([process])


def end_with_parent(code: int) -> None:
    """End this process with `code` as soon as its parent ends for any reason."""
    parent = parent_process()
    assert parent
    _exit_after(parent.join, code)


def end_with_launcher(code: int) -> None:
    """End this process with `code` soon after its launcher ends; for processes not started by multiprocessing. A
    launcher that ended before this call is not noticed."""
    launcher = os.getppid()

    def wait() -> None:
        while os.getppid() == launcher:  # orphans get another parent
            time.sleep(_GLANCE)

    _exit_after(wait, code)


def _exit_after(wait: Callable[[], object], code: int) -> None:
    def run() -> None:
        wait()
        os._exit(code)

    threading.Thread(target=run, daemon=True).start()


def open_outputs() -> None:
    """Redirect closed outputs to the null device, so that they do not write into the file that is opened next.
    Characters that an output's encoding lacks are escaped."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = getattr(sys, name)
        if stream is None:  # None: it was closed
            nowhere = os.open(os.devnull, os.O_WRONLY)
            try:
                os.fstat(number)
            except OSError:
                os.dup2(nowhere, number)
            setattr(sys, name, os.fdopen(nowhere, "w", encoding="utf-8"))
        elif isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def close_outputs() -> bool:
    """Flush the outputs; returns whether one has lost its reader. Text that cannot be written is dropped, so that the
    interpreter exits quietly."""
    gone = False
    for stream in (sys.stdout, sys.stderr):
        refused = False
        try:
            stream.flush()
        except OSError:
            refused = True
        with suppress(OSError):  # an output without a file descriptor
            unread = _is_unread(stream.fileno())
            gone |= unread
            if refused or unread:
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return gone


def _is_unread(number: int) -> bool:
    """Whether this file descriptor is a pipe or a terminal whose other end is closed."""
    poll = select.poll()
    poll.register(number, 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
