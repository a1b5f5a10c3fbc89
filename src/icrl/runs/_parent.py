"""Tie of a process to its parent. Imports nothing large, so that a process can be tied before all else."""

import ctypes
import fcntl
import os
import signal
import sys
import threading
import time
from multiprocessing import parent_process
from pathlib import Path

LAUNCHER = "ICRL_ENDS_WITH_LAUNCHER"  # variable with the number of a process, for those that it starts to end with it
_PDEATHSIG = 1  # of Linux's prctl: the signal that a process gets when its parent ends
_POLL_SECONDS = 0.5  # seconds between two checks of the parent


def tie_if_asked() -> None:
    """Tie this process to its parent if the environment says so, as that of torchrun's processes does."""
    launcher = int(os.environ.pop(LAUNCHER, "0"))  # not for processes that this one starts
    if launcher or "TORCHELASTIC_RUN_ID" in os.environ:
        end_with_parent(launcher)


def end_with_parent(launcher: int = 0) -> None:
    """End this process as soon as its parent ends for any reason, or at once if this has happened. The parent is the
    process `launcher` (0: whichever it is now), or the one that asked multiprocessing for this process.

    On Linux the kernel does it, also amid a call that holds the interpreter's lock."""
    asker, parent = parent_process(), launcher or os.getppid()
    if sys.platform != "linux":
        threading.Thread(target=_wait, args=(parent,), daemon=True).start()
        return
    if asker:
        pipe = asker.sentinel  # closed when that process ends
        fcntl.fcntl(pipe, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(pipe, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(pipe, fcntl.F_SETFL, os.O_ASYNC)
        is_gone = not asker.is_alive()
    else:
        ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)
        is_gone = os.getppid() != parent or (parent == 1 and not launcher and not _launches())
    if is_gone:
        os._exit(1)


def _launches() -> bool:
    """True if the first process is torchrun, as in a container, and did not only inherit this one."""
    return b"torch" in Path("/proc/1/cmdline").read_bytes()


def _wait(parent: int) -> None:
    if asker := parent_process():
        asker.join()
    while parent != 1 and os.getppid() == parent:
        time.sleep(_POLL_SECONDS)
    os._exit(1)
