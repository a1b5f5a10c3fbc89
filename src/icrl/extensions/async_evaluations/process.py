"""Evaluations in a separate process, which never delays training.

States that wait for their evaluation are checkpoints of kind `pending`. They are deleted when their results are stored,
so a run that is killed resumes and ends with the files of an uninterrupted run. Without this extension they stay.
"""

import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from icrl.contracts import Json
from icrl.extensions.parallel.worker import Worker
from icrl.runs import checkpoint
from icrl.runs.checkpoint import saved_step
from icrl.runs.evaluations import EvalsConfig, Evaluation, Evaluations, Evaluator
from icrl.runs.files import Identity, check_owner
from icrl.runs.processes import progress_bar, say

PATIENCE = 3600.0  # seconds without an answer after which the process is restarted
_POLL_SECONDS = 1.0  # seconds between two checks of the process while waiting
_MAX_DEATHS = 3  # of the process during one evaluation before it is given up


class AsyncEvaluations(Evaluations):
    """Evaluations in another process if `evals.async_eval` says so. It starts with the first one, and evaluates the
    first of the waiting states."""

    _worker: Worker | None = None
    _deadline, _deaths = 0.0, 0  # of the evaluation in progress

    def __init__(
        self,
        folder: Path,
        prefix: str,
        evaluate: Evaluator,
        options: EvalsConfig,
        done: int,
        description: Json,
        *others: Any,
    ) -> None:
        """Continue as `Evaluations`; states up to `done` without a result are evaluated again."""
        waiting = checkpoint.sidecars(folder, "pending")[::-1]
        self._waiting = [sidecar for sidecar in waiting if saved_step(sidecar) <= done]  # in order of step
        for sidecar in self._waiting:
            check_owner(sidecar, Identity.of(checkpoint.check(sidecar)["description"]), Identity.of(description))
        super().__init__(folder, prefix, evaluate, options, done, description, *others)
        self._prune()
        while self._waiting and (saved_step(self._waiting[0]) in self.results or not options.async_eval):
            first = self._waiting[0]
            self._store_first(self.results.get(saved_step(first)) or evaluate(state_of(first)))
        self._feed()

    def start(self, step: int, state: dict[str, Any]) -> None:
        if not self._options.async_eval:
            super().start(step, state)
        elif step not in self.results and step not in map(saved_step, self._waiting):
            checkpoint.save(self._folder, "pending", step, state, self._description, keep=sys.maxsize)
            self._waiting.append(self._folder / f"pending-{step:09d}.json")
            if len(self._waiting) == 1:
                self._feed()

    def poll(self, patience: float = 0.0) -> None:
        """Store a result that arrives within `patience` seconds; restart a process that died, hangs or raised an
        exception."""
        if not (self._waiting and self._worker):
            return
        step = saved_step(self._waiting[0])
        try:
            answer, fate = self._worker.answer(patience), ""
        except (EOFError, OSError):
            answer, fate = None, f"died (exit code {self._worker.end(_POLL_SECONDS)})"
        if isinstance(answer, Evaluation):
            self._store_first(answer)
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
            self._drop_first()
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

    def _store_first(self, evaluation: Evaluation) -> None:
        """Store the result of the first waiting state."""
        step = saved_step(self._waiting[0])
        if step not in self.results:
            self._store(step, evaluation)
        self._keep_best(step, partial(state_of, self._waiting[0]))
        self._drop_first()

    def _drop_first(self) -> None:
        """Delete the first waiting state."""
        del self._waiting[0]
        self._prune()

    def _prune(self) -> None:
        checkpoint.prune(self._folder, "pending", [sidecar.stem for sidecar in self._waiting])

    def _feed(self) -> None:
        """Give the worker the first waiting state; start a worker if there is none."""
        if self._waiting:
            self._deadline = time.monotonic() + PATIENCE
            self._worker = self._worker or Worker(partial(_evaluated, self._evaluate))
            self._worker.give(self._waiting[0])


def state_of(sidecar: Path) -> dict[str, Any]:
    """State of a checkpoint on the CPU."""
    return checkpoint.load(sidecar, torch.device("cpu"))[0]


def _evaluated(evaluate: Evaluator, sidecar: Path) -> Evaluation:
    """Evaluation in the worker."""
    torch.set_num_threads(1)
    return evaluate(state_of(sidecar))
