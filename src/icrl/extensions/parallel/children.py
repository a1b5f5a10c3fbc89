"""Child processes that ignore signals and end with their parent.

A signal often reaches a whole process group. Only the training process handles it, and then ends its children.
"""

import fcntl
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from multiprocessing import parent_process, resource_tracker
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize

_SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGUSR2}


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
    """Function that kills `processes`; it also runs at the end of the program, where multiprocessing would send them
    a SIGTERM, which they ignore, and wait for ever."""
    kept = list(processes)
    return Finalize(None, lambda: [process.kill() for process in kept], exitpriority=0)


def end_with_parent() -> None:
    """End this process as soon as the one that asked multiprocessing for it ends for any reason, or at once if this has
    happened. On Linux the kernel does it, also amid a call that holds the interpreter's lock."""
    asker = parent_process()
    assert asker  # or this is no process of multiprocessing
    if sys.platform != "linux":
        threading.Thread(target=_exit_after, args=(asker,), daemon=True).start()
        return
    pipe = asker.sentinel  # closed when that process ends
    fcntl.fcntl(pipe, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(pipe, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(pipe, fcntl.F_SETFL, os.O_ASYNC)
    if not asker.is_alive():
        os._exit(1)


def _exit_after(process: BaseProcess) -> None:
    process.join()
    os._exit(1)
