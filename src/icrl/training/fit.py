"""The gradient loop: minimise an objective on batches that are functions of (seed, update)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from icrl.config.options import refuse
from icrl.config.schedules import Clock
from icrl.contracts import AnyBatch, Objective
from icrl.runs.checkpoint import FINISHED, Interval
from icrl.runs.divergence import FiniteCheck
from icrl.runs.evaluations import EVALUATIONS, Evaluation, Evaluations, Evaluator
from icrl.runs.files import Identity, write_owned
from icrl.runs.metrics import INSPECTORS, MetricLogger, shown
from icrl.runs.processes import Progress
from icrl.runs.record import record_end, record_session
from icrl.runs.run_state import Generators, RunState, Stateful
from icrl.training.program import RunContext
from icrl.training.updates import Updater

NOISE_SCALES: list[Callable[..., Any]] = []  # maker of the estimator of the gradient noise scale, of an extension
_TOLD = ("loss", "accuracy", "action_error", "td_error")  # in the progress line, as far as measured
_OF_TRIALS = ("return", "last_success")  # in their place, because the loss of policy gradients tells nothing
_ENDS = {name: [f"development_{end}_{name}" for end in ("first", "last")] for name in ("success", "return")}


def fit(
    context: RunContext,
    model: nn.Module,
    objective: Objective,
    batch_at: Callable[[int], AnyBatch],
    evaluator: Evaluator,
    *,
    num_mini_batches: int = 0,
    after_step: Callable[[], None] | None = None,
    parts: Mapping[str, Stateful] | None = None,
) -> None:
    """Train `model` in place for `trainer.num_iterations` updates, or for `finetune.num_iterations` of
    `num_mini_batches` each, from the newest checkpoint if there is one. Ends bit-identical to an uninterrupted run.

    `batch_at(update)` is this rank's share of a batch. `evaluator` evaluates a state `{"step", "model"}`. `after_step`,
    called after each optimizer step, may change the model. `parts` are saved and restored too. Raises `Stopped` when a
    signal asked the run to end; `DivergedError` on all ranks when a number is not finite."""
    updater = Updater(model.train(), objective, context.config, context.device, context.ranks, after_step)
    with opened(context, updater, evaluator, num_mini_batches, parts) as training:
        for update in range(training.run.done, training.run.total):
            training.evaluate_and_save(update)
            batch = batch_at(update)
            training.measure_noise(batch)
            metrics = updater.update(batch, training.clock)
            training.log(metrics, batch)
        training.evaluate_and_save(training.run.total)


@contextmanager
def opened(
    context: RunContext,
    updater: Updater,
    evaluator: Evaluator,
    num_mini_batches: int = 0,
    parts: Mapping[str, Stateful] | None = None,
) -> Iterator[Training]:
    """Training with the model, optimizer and `parts` of its newest checkpoint, see `fit`. It is marked as finished when
    the block ends without an error."""
    config, ranks, model, device = context.config, context.ranks, updater.model, context.device
    total = num_mini_batches * config.finetune.num_iterations or config.trainer.num_iterations
    run = RunState(context.folder, context.description, config.checkpoints, total, device, ranks=ranks)
    with ExitStack() as stack:
        training = Training(stack, context, run, evaluator, updater, num_mini_batches or 1)
        if ranks.rank:  # own dropout on each rank; rank 0 draws as a single process would
            torch.manual_seed(torch.initial_seed() + ranks.rank)
        run.restore("model", model)
        run.restore("updater", updater)
        if training.noise_scale:
            run.restore("noise_scale", training.noise_scale, is_optional=True)  # absent without the extension
        for name, part in {"generators": Generators(device, ranks), **(parts or {})}.items():
            run.restore(name, part)
        stack.enter_context(run)
        if ranks.is_writer:
            (run.folder / FINISHED).unlink(missing_ok=True)  # of a run that is extended, when nothing can refuse it
        yield training
        if training.evaluations:
            run.finish(training.evaluations.wait)
    if ranks.is_writer:
        owner = Identity.of(context.description)
        record_end(run.folder, owner, total)
        write_owned(run.folder / FINISHED, owner, total, {"updates": total})


class Training:
    """Evaluations, checkpoints and curves of a run: all that the loop does beside updates. `stack` closes the rest."""

    def __init__(
        self, stack: ExitStack, context: RunContext, run: RunState, evaluator: Evaluator, updater: Updater, each: int
    ) -> None:
        config, ranks, program = context.config, context.ranks, Identity.of(run.description).program
        saving = config.checkpoints
        self._config, self._ranks, self.run, self._updater = config, ranks, run, updater
        self._device, self._each = context.device, each  # updates of an iteration
        self._evaluates_at = Interval(config.evals.num_evals, config.evals.eval_interval, run.total, end=True)
        self._snapshot = Interval(0, -(-saving.snapshot_interval // config.trainer.mini_batch_size), run.total)
        self._logger, self.evaluations = _services(stack, context, run, evaluator)
        precise = "device.amp_dtype=bfloat16 or " if updater.scaler.is_enabled() else ""
        rates = getattr(updater.objective, "rates", "optimizer.learning_rate or optimizer.max_gradient_norm")
        advice = f"{precise}a lower {getattr(updater.objective, 'lowered', '')}{rates}"  # lowered: others, "KEY, "
        self._finite = FiniteCheck(program, {"": updater.model}, lambda _: advice, ranks)
        run.before_save = lambda: self._finite.check(run.done)
        kind, lacking = config.summaries.gradient_noise_scale, "needs an extension that is not installed; give none"
        refuse(kind != "none" and not NOISE_SCALES, f"summaries.gradient_noise_scale={kind} {lacking}")
        self.noise_scale = NOISE_SCALES[-1](config.summaries, config.trainer, ranks) if NOISE_SCALES else None
        self._noise: dict[str, float] = {}
        num_profiled = config.summaries.profiled_iterations * ranks.is_writer
        self._iteration_done = stack.enter_context(INSPECTORS[-1].profiled(run.folder, num_profiled))

    @property
    def clock(self) -> Clock:
        """Place of the next update in schedules."""
        done = self.run.done
        return Clock(done / self.run.total, done // self._each, 0, done)

    def evaluate_and_save(self, update: int) -> None:
        """Evaluate and save after `update` updates, if it is time to. Raises `Stopped`, once saved, after a signal."""
        run = self.run
        run.done = update
        if self._config.trainer.evaluate and (update == 0 or self._evaluates_at.due(update)):
            self._start_evaluation()
        if self.evaluations:
            self.evaluations.poll()
        if not run.is_saved and self._snapshot.due(update):
            run.save("snapshot", keep=run.total)  # all of them
        run.save_if_due()

    def _start_evaluation(self) -> None:
        """Called by all ranks, of which rank 0 evaluates. The random numbers of dropout are unaffected."""
        run = self.run
        run.before_save()
        if self.evaluations:
            with torch.random.fork_rng([self._device] if self._device.type == "cuda" else []):
                self.evaluations.start(run.done, {"step": run.done, "model": self._updater.model.state_dict()})

    def measure_noise(self, batch: AnyBatch) -> None:
        """Estimate the gradient noise scale on the batch of the next update, if it is asked for."""
        following, updater = self.run.done + 1, self._updater
        self._noise = {}
        if self.noise_scale and self._logger.due(following):
            self._noise = self.noise_scale.measure(updater.model, updater.loss, batch, following, self._ranks)

    def log(self, metrics: dict[str, Tensor], batch: AnyBatch) -> None:
        """Show the `metrics` of the update that was just made on `batch`, if it is time to. Raises `DivergedError` if a
        number of it is not finite."""
        made, updater = self.run.done + 1, self._updater
        self._logger.progress.advance()
        due = self._logger.due(made)
        self._finite.record(made, updater.watched(metrics), check=due)
        if due:
            self._show(made, metrics, batch)
        self._iteration_done()

    def _show(self, update: int, metrics: dict[str, Tensor], batch: AnyBatch) -> None:
        """Add the points of one update: the means of `metrics` over all ranks, which call this, and rates. The progress
        line also has the newest evaluation."""
        means = self._ranks.average(torch.stack([value.detach().float() for value in metrics.values()]).cpu())
        values = dict(zip(metrics, means.tolist(), strict=True)) | self._noise | self._updater.rates()
        if not self._logger.is_shown:
            return
        model, objective = self._updater.model, self._updater.objective
        if warn := getattr(objective, "warn", None):
            warn(update, values)
        self._logger.scalars("train", values, update)
        if self._config.summaries.details:
            INSPECTORS[-1].show_update(self._logger, update, model, objective, batch)
        told = [shown({name: values[name] for name in (_OF_TRIALS if "return" in values else _TOLD) if name in values})]
        self._logger.progress.tell("  ".join(told + newest(self.evaluations.results if self.evaluations else {})))


def _services(
    stack: ExitStack, context: RunContext, run: RunState, evaluator: Evaluator
) -> tuple[MetricLogger, Evaluations | None]:
    """Begin the session of a run that is not finished: its record, the logger of a rank, and on rank 0 evaluations."""
    beyond = f"{run.folder} is at update {run.done}, beyond the {run.total} of this configuration"
    refuse(run.done > run.total, f"{beyond}: raise trainer.num_iterations (or what sets it), or give another name=")
    config, folder, is_writer, owner = context.config, run.folder, context.ranks.is_writer, Identity.of(run.description)
    progress = Progress(owner.program, run.total, run.done, "update", is_writer)
    logger = MetricLogger(folder if is_writer else None, run.done, config.summaries, run.total, progress)
    run.loggers.append(stack.enter_context(logger))
    if is_writer:
        record_session(config, folder, owner, run.done)
        logger.describe(config)
    if not (is_writer and config.trainer.evaluate):
        return logger, None
    done = -1 if run.is_fresh else run.done
    started = EVALUATIONS[-1](folder, "in_context", evaluator, config.evals, done, run.description, config.summaries)
    return logger, stack.enter_context(started)


def newest(results: Mapping[int, Evaluation]) -> list[str]:
    """Words for the newest of the evaluations in context, for a progress line: success on development tasks in the
    first and in the last episode of a stream, or the return if there is no success. Empty without one."""
    metrics = [*results.values()][-1].metrics if results else {}
    success, returns = ([metrics[name] for name in names if name in metrics] for names in _ENDS.values())
    label, ends = ("return", returns) if any(returns) and not any(success) else ("success", success)
    return [f"{label} in context " + " -> ".join(f"{value:.2f}" for value in ends)] if ends else []
