"""Evaluations in a separate process, which never delays training."""

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from icrl.runs import checkpoint
from icrl.runs.checkpoint import step_of
from icrl.runs.evaluations import Evaluation, Evaluations, Evaluator, state_of
from icrl.runs.processes import Worker, progress_bar, say

PATIENCE = 3600.0  # seconds without an answer after which the process is restarted
_POLL_SECONDS = 1.0  # seconds between two checks of the process while waiting
_MAX_DEATHS = 3  # of the process during one evaluation before it is given up


class AsyncEvaluations(Evaluations):
    """Evaluations in another process if `evals.async_eval` says so. It starts with the first one, and evaluates the
    first of the waiting states."""

    _worker: Worker | None = None
    _deadline, _deaths = 0.0, 0  # of the evaluation in progress

    def _resume(self) -> None:
        while self._waiting and (step_of(self._waiting[0]) in self.results or not self._options.async_eval):
            self._store_first()
        self._feed()

    def start(self, step: int, state: dict[str, Any]) -> None:
        if not self._options.async_eval:
            super().start(step, state)
        elif step not in self.results and step not in map(step_of, self._waiting):
            checkpoint.save(self._folder, "pending", step, state, self._description, keep=sys.maxsize)
            self._waiting.append(self._folder / f"pending-{step:09d}.json")
            if len(self._waiting) == 1:
                self._feed()

    def poll(self, patience: float = 0.0) -> None:
        """Store a result that arrives within `patience` seconds; restart a process that died, hangs or raised an
        exception."""
        if not (self._waiting and self._worker):
            return
        step = step_of(self._waiting[0])
        try:
            answer, fate = self._worker.answer(patience), ""
        except (EOFError, OSError):
            answer, fate = None, f"died (exit code {self._worker.end(_POLL_SECONDS)})"
        if isinstance(answer, Evaluation):
            self._store(step, answer)
            self._deaths = 0
            self._feed()
            return
        if answer:
            fate = f"failed:\n{answer}"
        elif not fate and time.monotonic() >= self._deadline:
            fate = f"gave no answer in {PATIENCE:g} s"
        if not fate:
            return
        self._worker.end()
        self._deaths += 1
        last = self._deaths == _MAX_DEATHS
        after = f"giving up after {_MAX_DEATHS} attempts" if last else "restarting it"
        say(f"the process for the evaluation at step {step} {fate}; {after}")
        if last:
            self._drop()
            self._deaths = 0
        self._worker = None
        self._feed()

    def wait(self, until: Callable[[], bool] = lambda: False) -> None:
        """`poll` until no evaluation is pending or `until()`, called about once a second, is true."""
        if not self._waiting or until():
            return
        with progress_bar(total=len(self._waiting), desc="waiting for evaluations", unit="evaluation") as bar:
            while self._waiting and not until():
                self.poll(_POLL_SECONDS)
                bar.update(bar.total - len(self._waiting) - bar.n)
                bar.refresh()  # the time that has passed

    def close(self) -> None:
        """End the process; unfinished evaluations are repeated when the run resumes. Calling it twice is fine."""
        if self._worker:
            self._worker.end()
        self._worker = None
        self._waiting.clear()
        super().close()

    def _feed(self) -> None:
        """Give the worker the first waiting state; start a worker if there is none."""
        if self._waiting:
            self._deadline = time.monotonic() + PATIENCE
            self._worker = self._worker or Worker(partial(_evaluated, self._evaluate))
            self._worker.give(self._waiting[0])


def _evaluated(evaluate: Evaluator, sidecar: Path) -> Evaluation:
    """Evaluation in the worker."""
    torch.set_num_threads(1)
    return evaluate(state_of(sidecar))
