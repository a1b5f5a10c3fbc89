"""Process that works for this one, call after call."""

import os
import sys
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib import import_module
from multiprocessing import get_all_start_methods, get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from icrl.config.modules import LOADED, load_plugins
from icrl.extensions.parallel.children import end_with_parent, killed_at_the_end, without_signals

START_METHOD = "forkserver" if "forkserver" in get_all_start_methods() else "spawn"
_EXIT = 10.0  # seconds in which a process exits, which takes time at the lowest priority


class Worker:
    """Process that calls a picklable `function` on one value after another, at the lowest priority if it is `idle`. It
    ignores signals, and ends with its parent or after an exception."""

    def __init__(self, function: Callable[[Any], Any], *, idle: bool = True) -> None:
        """torch's threads may hold locks when this process is forked, so a server without threads starts the other."""
        context: Any = get_context(START_METHOD)
        self._connection, theirs = context.Pipe()
        # Not a daemon, which could start no processes of environments. All end with their parent in any case.
        self.process: BaseProcess = context.Process(target=_serve, args=(theirs, function, idle, loaded()))
        with without_signals():
            self.process.start()
        self._kill = killed_at_the_end([self.process])
        theirs.close()

    def give(self, value: Any) -> None:
        with suppress(OSError):  # the process is dead: `answer` raises
            self._connection.send(value)

    def answer(self, patience: float) -> Any:
        """Result, or traceback of an exception; None if neither arrives within `patience` seconds. Raises `EOFError` or
        `OSError` if the process is dead."""
        wait([self._connection, self.process.sentinel], patience)
        if self._connection.poll():
            return self._connection.recv()
        if self.process.exitcode is not None:
            raise EOFError
        return None

    def end(self, patience: float = 0.0) -> int | None:
        """Kill the process if it does not end by itself within `patience` seconds; returns its exit code."""
        self.process.join(patience)
        self._kill()
        self.process.join(_EXIT)
        self._connection.close()
        return self.process.exitcode


def loaded() -> list[str]:
    """Names of the modules that were imported here, for `load_again` in a process that this one starts."""
    return [name for name in LOADED if name in sys.modules]


def load_again(names: Iterable[str]) -> None:
    """Register in this process what extensions and the modules with these `names` register."""
    load_plugins()
    for name in names:
        import_module(name)


def _serve(connection: Connection, function: Callable[[Any], Any], idle: bool, modules: list[str]) -> None:
    if idle:
        os.nice(19)
    if idle and sys.platform == "linux":  # nice alone would let it finish its time slice while training waits
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    end_with_parent()  # the pipe is read only between two calls
    load_again(modules)
    with suppress(EOFError, ConnectionError):  # the parent is gone
        while True:
            value = connection.recv()
            try:
                answer = function(value)
            except Exception:
                connection.send(traceback.format_exc())
                return  # what the process shares with others ends too, so that none of them waits for it
            connection.send(answer)
