"""Process that evaluates checkpoints beside training."""

from __future__ import annotations

import os
import sys
import traceback
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from icrl.runs import checkpoint
from icrl.runs.processes import end_with_parent, start_quietly

if TYPE_CHECKING:
    from icrl.runs.evaluations import Evaluation, Evaluator

_CONTEXT = "spawn"  # torch's threads may hold locks when a process is forked
GLANCE = 1.0  # seconds between two checks of the process while there is nothing to do but wait
CPU = torch.device("cpu")


class EvaluationProcess:
    """Process that evaluates one state after the other. It has the lowest priority, leaves signals to its parent and
    ends with it."""

    def __init__(self, evaluate: Evaluator) -> None:
        context = get_context(_CONTEXT)
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, evaluate), daemon=True)
        self._kill = start_quietly(self._process)
        theirs.close()

    def give(self, sidecar: Path) -> None:
        with suppress(OSError):  # it is dead: `answer` says so
            self._connection.send(sidecar)

    def answer(self, patience: float) -> Evaluation | str | None:
        """The evaluation, or the traceback of an exception, if one comes within `patience` seconds. Raises `EOFError`
        or `OSError` if the process is dead."""
        wait([self._connection, self._process.sentinel], patience)
        if self._connection.poll():
            return self._connection.recv()
        if self._process.exitcode is not None:
            raise EOFError
        return None

    def end(self, patience: float) -> int | None:
        """Kill the process if it does not end by itself within `patience` seconds; returns its exit code."""
        self._process.join(patience)
        self._kill()
        self._process.join(10 * GLANCE)  # at the lowest priority even its end takes time
        self._connection.close()
        return self._process.exitcode


def _serve(connection: Connection, evaluate: Evaluator) -> None:
    """Main function of the process: receive the sidecar of a state, send its evaluation or a traceback."""
    os.nice(19)
    if sys.platform == "linux":  # nice alone lets it finish its time slice while threads of training wait for the core
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    torch.set_num_threads(1)
    end_with_parent(0)  # the pipe tells it only between two evaluations
    with suppress(EOFError, ConnectionError):  # the parent is gone
        while True:
            sidecar = connection.recv()
            try:
                answer = evaluate(checkpoint.load(sidecar, CPU)[0])
            except Exception:
                answer = traceback.format_exc()
            connection.send(answer)
