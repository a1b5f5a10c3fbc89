"""Resumable units of work: commands of this library that one process runs one after the other.

`run_unit` runs wherever an engine (`launch`) puts it, so this module imports nothing large. All that units leave lies
in folders that all machines share.
"""

import fcntl
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import icrl
from icrl.extensions.scaling.tied import LAUNCHER
from icrl.runs import SHARED

PATIENCE = 20.0  # seconds that a stopped process has to save its work
ICRL = (sys.executable, "-m", "icrl")
TORCHRUN = (sys.executable, "-m", "icrl.extensions.scaling.ranks")  # see its `run_together`
ATTEMPTS = 3  # of a unit whose process is killed
_POLL_SECONDS = 0.1  # seconds between two looks at a process, or at a lock
_stopped: set[str] = set()  # folders of launches that were stopped, in this process


@dataclass
class Job:
    """Commands to run one after the other: programs with their options."""

    name: str
    commands: list[list[str]]
    needs: str  # the job that has to be done before; empty: none
    updates: int  # of all that it trains
    done: bool = True  # no evaluation is missing


def stop(folder: str) -> None:
    """End the units of the launch in `folder` that run in this process, and start no others."""
    _stopped.add(folder)


def resume(folder: str) -> None:
    """Let units of the launch in `folder` run in this process again."""
    _stopped.discard(folder)


def environment() -> dict[str, str]:
    """Environment in which a command finds this library."""
    library = os.pathsep.join((str(Path(icrl.__file__).parents[1]), os.environ.get("PYTHONPATH", "")))
    return os.environ | {"PYTHONPATH": library.rstrip(os.pathsep)}


def run_unit(job: Job, folder: str, program: Sequence[str] = ICRL, num_processes: int = 1) -> str:
    """Run the commands of `job`, each in a separate process, with one log in `folder`; returns the reason if one fails:
    the error in the log, or its last line. A process that is killed is started again, `ATTEMPTS` times in all. `SHARED`
    programs run in `num_processes` processes of torchrun.

    The log is locked by this process and by those that write to it. So a unit that an engine gives to another worker,
    because it takes the first one for dead, waits until the last process of the first one has ended."""
    path = Path(folder) / f"{job.name}.log"
    with path.open("a") as log, _locked(log, lambda: folder in _stopped) as is_locked:
        if is_locked:
            log.truncate(0)
        for command in job.commands if is_locked else ():
            is_shared = num_processes > 1 and command[0] in SHARED
            starter = [*TORCHRUN, str(num_processes), str(ATTEMPTS - 1)] if is_shared else program
            for attempt in range(ATTEMPTS):
                print(f"$ icrl {shlex.join(command)}", file=log, flush=True)
                code = _run([*starter, *command], log, lambda: folder in _stopped)
                if code != -signal.SIGKILL or folder in _stopped or attempt == ATTEMPTS - 1:
                    break
            if code:
                lines = [line.strip() for line in path.read_text(errors="replace").splitlines() if line.strip()]
                errors = [line for line in lines if line.startswith("error: ")]
                return f"{(errors or lines)[-1]} (exit code {code}, {path})"
    return "" if is_locked else "stopped"


@contextmanager
def _locked(file: IO[str], is_stopped: Callable[[], bool]) -> Iterator[bool]:
    """Lock of an open file, which its processes share; False if the launch is stopped before it is free."""
    while not is_stopped():
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(_POLL_SECONDS)
        else:
            yield True
            return
    yield False


def _run(command: Sequence[str], log: IO[str], is_stopped: Callable[[], bool]) -> int:
    """Exit code of a process that ends with this one. If the launch is stopped, so is the process, gently at first."""
    environs = environment() | {LAUNCHER: str(os.getpid())}
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environs) as process:
        while process.poll() is None and not is_stopped():
            time.sleep(_POLL_SECONDS)
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
        return process.wait()
