"""Evaluations that run during training.

`evaluations.json` is the single record of results. The TensorBoard points in `evals/` and the checkpoint `best` are
derived from it. Storing a result takes idempotent steps: record, points, `best`. So a run that is killed between two of
them resumes and ends with the files of an uninterrupted run.
"""

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple, Self

from pydantic import model_validator

from icrl.config.options import NO_EFFECT, Options, option, refuse, refuse_both
from icrl.contracts import Json, Metrics, PipelineError
from icrl.runs import checkpoint
from icrl.runs.files import Identity, check_owner, read_owned, write_owned
from icrl.runs.metrics import CurvesConfig, MetricLogger
from icrl.runs.processes import say
from icrl.runs.writers import clear


class EvalTimesConfig(Options):
    num_evals: int = option(5, "evaluations during training, evenly spread (0: use eval_interval)", ge=0)
    eval_interval: int = option(0, "iterations between evaluations (0: use num_evals)", ge=0)


class EvalsConfig(EvalTimesConfig):
    num_eval_episodes: int = option(128, "episodes per task (stage one: per learner)", ge=1, le=10**6)
    num_eval_environments: int = option(
        8, "streams that share the episodes; the first ceil(episodes / streams) of each stream count", ge=1, le=10**5
    )
    sample_probability: float = option(
        1.0, "probability of sampling an action instead of taking the most probable one", ge=0, le=1
    )
    async_eval: bool = option(True, "evaluate in another process while training continues", may_change=True)

    former = {"timeout": NO_EFFECT, "uncertainty": NO_EFFECT}

    @model_validator(mode="after")
    def _check(self) -> Self:
        refuse_both("evals", num_evals=self.num_evals, eval_interval=self.eval_interval)
        given, most = self.num_eval_environments, self.num_eval_episodes
        refuse(given > most, f"evals.num_eval_environments={given} must be at most evals.num_eval_episodes={most}")
        return self


_FORM = {"evaluations": [{"step": int, "metrics": {str: float}, "score": float}]}


class Evaluation(NamedTuple):
    """Result of an evaluation: curves, and the score that chooses the best checkpoint (higher is better)."""

    metrics: Metrics
    score: float


Evaluator = Callable[[dict[str, Any]], Evaluation]
"""Callable that evaluates the state of a checkpoint. It uses no global generator, so any process gets the same result.
It must be picklable if evaluations are asynchronous."""


class Evaluations(AbstractContextManager["Evaluations"]):
    """Evaluations of one run; `results` holds them by step, in order of step."""

    def __init__(
        self,
        folder: Path,
        prefix: str,
        evaluate: Evaluator,
        options: EvalsConfig,
        done: int,
        description: Json,
        curves: CurvesConfig,
        trained: int = 1,
    ) -> None:
        """Continue in `folder` at step `done` (-1: a new run); later results are dropped. Curves are named
        `prefix`/metric, `description` is stored with the checkpoints. A state before step `trained` is never the best.
        Raises `PipelineError` if files belong to another run than `description` names, or results are missing."""
        self._folder, self._prefix, self._evaluate, self._options = folder, prefix, evaluate, options
        self._description, self._trained = description, trained
        self._path, self._owner = folder / "evaluations.json", Identity.of(description)
        self.results: dict[int, Evaluation] = {}
        if self._path.exists():
            content, owner, _ = read_owned(self._path, _FORM)
            if done >= 0:  # a new run ignores results of other runs
                check_owner(self._path, owner, self._owner)
            kept = [entry for entry in content["evaluations"] if entry["step"] <= done]
            self.results = {entry["step"]: Evaluation(entry["metrics"], entry["score"]) for entry in kept}
            if len(kept) < len(content["evaluations"]):
                self._write()
        elif done >= 0 and checkpoint.sidecars(folder, "best"):  # which is stored after its result
            raise PipelineError(f"{self._path} is missing, by which the best weights are chosen: restore it")
        clear(folder / "evals", anew=done < 0)  # an event file cannot be replaced in one step
        self._logger = MetricLogger(folder / "evals", options=curves)
        self._draw(self.results)

    def start(self, step: int, state: dict[str, Any]) -> None:
        """Evaluate the `state` of a checkpoint at `step`, unless this is done or in progress. Steps must increase.

        Call it before the checkpoint at `step` is written. When it returns, its result, or with another process the
        state, is on disk, and training may change the weights."""
        if step not in self.results:
            self._store(step, self._evaluate(state))
            self._keep_best(step, lambda: state)

    def poll(self, patience: float = 0.0) -> None:
        """Store a result that arrives within `patience` seconds from another process."""

    def wait(self, until: Callable[[], bool] = lambda: False) -> None:
        """Wait until no evaluation is pending or `until()`, called about once a second, is true."""

    def close(self) -> None:
        """Calling it twice is fine."""
        self._logger.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _store(self, step: int, evaluation: Evaluation) -> None:
        """Record a result, draw its points and print it."""
        self.results = dict(sorted((self.results | {step: evaluation}).items()))
        self._write()
        self._draw({step: evaluation})
        named = {name.removeprefix("development_"): value for name, value in evaluation.metrics.items()}
        won = any(value for name, value in named.items() if "success" in name)  # else returns tell more
        numbers = "  ".join(f"{name} {value:.3g}" for name, value in named.items() if won or "success" not in name)
        say(f"evaluation at {step}:  {numbers}")

    def _keep_best(self, step: int, state: Callable[[], dict[str, Any]]) -> None:
        """Save the state at `step` as `best` if it is: the latest of equal scores, never an untrained one or of NaN."""
        scores = [(numbers.score, at) for at, numbers in self.results.items() if at >= self._trained]
        if step == max((pair for pair in scores if not math.isnan(pair[0])), default=(0, None))[1]:
            checkpoint.save(self._folder, "best", step, state(), self._description, keep=1)

    def _write(self) -> None:
        entries = [{"step": step} | evaluation._asdict() for step, evaluation in self.results.items()]
        write_owned(self._path, self._owner, max(self.results, default=-1), {"evaluations": entries})

    def _draw(self, results: dict[int, Evaluation]) -> None:
        for step, evaluation in results.items():
            self._logger.scalars(self._prefix, evaluation.metrics, step)
        self._logger.flush()


EVALUATIONS: list[type[Evaluations]] = [Evaluations]  # extensions append theirs; the last one counts
# Evaluations of source agents while they train, of an extension: a context, made of configuration, numbers of training
# tasks, run state, learner and a check to call first. Its function is called after each iteration.
SOURCE_EVALUATIONS: list[Callable[..., AbstractContextManager[Callable[[], None]]]] = []
