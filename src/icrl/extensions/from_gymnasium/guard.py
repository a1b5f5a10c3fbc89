"""Guard around the code of environments from outside: where it would end or hang the program, there is an error."""

import os
import signal
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from icrl.config.modules import describe_error
from icrl.contracts import PipelineError

SECONDS = 60.0  # that a reset or a step may take by default
_TICKS = 10  # of a turn that takes too long; one that was stopped for hours (Ctrl-Z) has had a single tick
_signal: Any = import_module("_signal")  # `signal` also makes enums of handlers, which takes longer than the rest here
# Ticks since a reset or a step began, seconds that it may take, and that the thread had waited at the last tick.
_turn = {"ticks": 0, "seconds": 0.0, "waited": 0.0}


class HangError(BaseException):
    """A turn that takes too long. Not an `Exception`, which the code from outside might catch to go on."""


def begin_turn() -> None:
    """Begin the time of a reset or a step in a guarded block."""
    _turn["ticks"] = 0


def _seconds_waited() -> float:
    """Seconds that the main thread was ready and had no core; 0 where the system does not tell."""
    try:
        return int(Path("/proc/self/schedstat").read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def _tick(*_: object) -> None:
    """Count a tick, unless others had the cores for most of it."""
    waited = _seconds_waited()
    _turn["ticks"] += waited - _turn["waited"] < _turn["seconds"] / _TICKS / 2
    _turn["waited"] = waited
    if _turn["ticks"] > _TICKS:
        raise HangError(f"no answer in {_turn['seconds']:g} s, the limit set by env.timeout")


class Guard(AbstractContextManager[None]):
    """Context in which any exception but `KeyboardInterrupt` becomes one of `kind` that begins with `where()`. So does
    `os._exit`, and in the main thread a turn that takes longer than `seconds`, unless it stays in compiled code."""

    def __init__(self, seconds: float, where: Callable[[], str], kind: type[PipelineError] = PipelineError) -> None:
        self._seconds, self._where, self._kind = seconds, where, kind
        self._here = os.getpid(), threading.get_ident()
        self._has_alarm = self._here[1] == threading.main_thread().ident  # no other thread may have one

    def __enter__(self) -> None:
        begin_turn()
        _turn["seconds"] = self._seconds
        self._exit, os._exit = os._exit, self._leave
        if self._has_alarm:
            self._handler = _signal.getsignal(signal.SIGALRM)
            if self._handler is not _tick:
                _signal.signal(signal.SIGALRM, _tick)
            self._timer = signal.setitimer(signal.ITIMER_REAL, self._seconds / _TICKS, self._seconds / _TICKS)

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if self._has_alarm:
            signal.setitimer(signal.ITIMER_REAL, *self._timer)
            if self._handler not in (_tick, signal.SIG_DFL):  # to leave ours takes less time
                _signal.signal(signal.SIGALRM, self._handler)
        os._exit = self._exit
        if error and not isinstance(error, KeyboardInterrupt):
            told = str(error) if isinstance(error, PipelineError) else describe_error(error)
            raise self._kind(f"{self._where()}: {told}") from error

    def _leave(self, status: int) -> NoReturn:
        if (os.getpid(), threading.get_ident()) != self._here:  # a fork of its own, or another thread
            self._exit(status)
        raise SystemExit(f"os._exit({status})")
