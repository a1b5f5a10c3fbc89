"""Evaluation process that runs in parallel with training."""

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
GLANCE = 1.0  # seconds between two checks of the process while waiting
CPU = torch.device("cpu")


class EvaluationProcess:
    """Process that evaluates one state after another. It has the lowest priority, ignores signals and ends with its
    parent."""

    def __init__(self, evaluate: Evaluator) -> None:
        context = get_context(_CONTEXT)
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, evaluate), daemon=True)
        self._kill = start_quietly(self._process)
        theirs.close()

    def give(self, sidecar: Path) -> None:
        with suppress(OSError):  # the process is dead: `answer` raises
            self._connection.send(sidecar)

    def answer(self, patience: float) -> Evaluation | str | None:
        """Evaluation, or traceback of an exception; None if neither arrives within `patience` seconds. Raises
        `EOFError` or `OSError` if the process is dead."""
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
        self._process.join(10 * GLANCE)  # at the lowest priority even exiting takes time
        self._connection.close()
        return self._process.exitcode


def _serve(connection: Connection, evaluate: Evaluator) -> None:
    """Main function of the process: receive the sidecar of a state, send its evaluation or a traceback."""
    os.nice(19)
    if sys.platform == "linux":  # nice alone would let it finish its time slice while training waits
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    torch.set_num_threads(1)
    end_with_parent(0)  # the pipe is read only between two evaluations
    with suppress(EOFError, ConnectionError):  # the parent is gone
        while True:
            sidecar = connection.recv()
            try:
                answer = evaluate(checkpoint.load(sidecar, CPU)[0])
            except Exception:
                answer = traceback.format_exc()
            connection.send(answer)
