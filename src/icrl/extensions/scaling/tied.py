"""Tie of a process to its launcher. Imports nothing large, so that a process is tied as early as possible."""

import ctypes
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
    """Tie this process to its parent if the environment says so, as that of torchrun's processes does. Processes of
    multiprocessing tie themselves (`icrl.extensions.parallel.children.end_with_parent`)."""
    launcher = int(os.environ.pop(LAUNCHER, "0"))  # not for processes that this one starts
    if (launcher or "TORCHELASTIC_RUN_ID" in os.environ) and not parent_process():
        _end_with(launcher)


def _end_with(launcher: int) -> None:
    """End this process as soon as its parent ends for any reason, or at once if this has happened. The parent is the
    process `launcher` (0: whichever it is now).

    On Linux the kernel does it, also amid a call that holds the interpreter's lock."""
    parent = launcher or os.getppid()
    if sys.platform != "linux":
        threading.Thread(target=_wait, args=(parent,), daemon=True).start()
        return
    ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent or (parent == 1 and not launcher and not _launches()):
        os._exit(1)


def _launches() -> bool:
    """True if the first process is torchrun, as in a container, and did not only inherit this one."""
    return b"torch" in Path("/proc/1/cmdline").read_bytes()


def _wait(parent: int) -> None:
    while parent != 1 and os.getppid() == parent:
        time.sleep(_POLL_SECONDS)
    os._exit(1)
