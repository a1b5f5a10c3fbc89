"""A process that works for this one."""

import signal
from collections.abc import Callable
from multiprocessing import resource_tracker
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize

_SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGUSR2}  # go to the whole group; the training process handles them


def start_quietly(process: BaseProcess) -> Callable[[], object]:
    """Start `process`, which leaves signals to this one, and so does all that it starts. Returns what kills it, and
    does so at the end of the program at the latest."""
    resource_tracker.ensure_running()  # in here, because starting it sets SIGINT and SIGTERM free
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # inherited, so there is no gap while it starts
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    # At the end of the program multiprocessing would send SIGTERM, which is blocked, and wait for ever.
    return Finalize(None, process.kill, exitpriority=0)
