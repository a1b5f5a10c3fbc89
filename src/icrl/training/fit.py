"""The gradient loop: minimise an objective on batches that are functions of (seed, update)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from itertools import starmap
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from icrl.config.options import refuse
from icrl.config.schedules import Clock
from icrl.contracts import AnyBatch, Objective, Stopped
from icrl.runs.checkpoint import FINISHED, Interval, is_due
from icrl.runs.divergence import FiniteCheck
from icrl.runs.evaluations import Evaluations, Evaluator
from icrl.runs.files import Identity, write_owned
from icrl.runs.metrics import MetricLogger, Progress, profiled
from icrl.runs.processes import say
from icrl.runs.record import parameters_table, record_session
from icrl.runs.run_state import Generators, RunState, Stateful
from icrl.training.curves import UpdateCurves, make_noise_scale
from icrl.training.updates import Updater

if TYPE_CHECKING:
    from icrl.training.program import RunContext


class Request(NamedTuple):
    """Update that a training run asks for; it is answered with the metrics of the update."""

    updater: Updater
    batch: AnyBatch
    clock: Clock


Answer = dict[str, Tensor]
Run = Generator[Request, Answer, None]


def fit(
    context: RunContext,
    model: nn.Module,
    objective: Objective,
    batch_at: Callable[[int], AnyBatch],
    evaluator: Evaluator,
    **more: Any,
) -> None:
    """Train `model` in place, as `fitting` does, one update after the other."""
    drive([fitting(context, model, objective, batch_at, evaluator, **more)])


def one_by_one(requests: Sequence[Request]) -> Iterable[Answer]:
    """Make each update when its answer is taken."""
    return starmap(Updater.update, requests)


def drive(runs: Sequence[Run], update: Callable[[Sequence[Request]], Iterable[Answer]] = one_by_one) -> None:
    """Go through `runs` at the pace of the one that is furthest behind: `update` makes the updates with the same number
    that they ask for, by default one after the other. A signal ends all of them, each with a checkpoint, before
    `Stopped` is raised; any other error ends the others too. They end in the reverse order, like contexts."""
    asked, stopped = dict[int, Request](), None
    try:
        for number, run in enumerate(runs):
            if request := next(run, None):
                asked[number] = request
        while asked:
            least = min(request.clock.updates for request in asked.values())
            chosen = [number for number in sorted(asked) if asked[number].clock.updates == least]
            answers = update([asked[number] for number in chosen])
            for number, answer in reversed([*zip(chosen, answers, strict=True)]):
                del asked[number]
                try:
                    asked[number] = runs[number].send(answer)
                except StopIteration:
                    continue
                except Stopped as error:
                    stopped = error
    except BaseException as error:
        for number in sorted(asked, reverse=True):
            with suppress(type(error)):
                runs[number].throw(error)
        raise
    if stopped:
        raise stopped


def fitting(
    context: RunContext,
    model: nn.Module,
    objective: Objective,
    batch_at: Callable[[int], AnyBatch],
    evaluator: Evaluator,
    *,
    num_updates: int = 0,
    after_step: Callable[[], None] | None = None,
    start: dict[str, Any] | None = None,
    parts: Mapping[str, Stateful] | None = None,
    lowered: str = "",
) -> Run:
    """Train `model` in place for `num_updates` (0: `trainer.num_iterations`), from the newest checkpoint of the run or,
    if there is none, from `start`, the state of another run. It ends bit-identical to an uninterrupted run.

    `batch_at(update)` is this rank's share of a batch. `evaluator` evaluates a state `{"step", "model"}`. `after_step`,
    called after each optimizer step, may change the model. `parts` are saved and restored too. `lowered` are options,
    "KEY, ", that may be lowered if the run diverges. Raises `Stopped` when a signal asked the run to end;
    `DivergedError` on all ranks when a number is not finite."""
    config, ranks, total = context.config, context.ranks, num_updates or context.config.trainer.num_iterations
    saving, owner, device = config.checkpoints, Identity.of(context.description), context.device
    updater = Updater(model.train(), objective, config, device, ranks, after_step)
    run = RunState(context.folder, context.description, saving, total, device, ranks=ranks, start=start)
    evaluation = Interval(config.evals.num_evals, config.evals.eval_interval, total, end=True)
    snapshot = Interval(0, -(-saving.snapshot_interval // config.trainer.mini_batch_size), total)
    with ExitStack() as stack:
        logger, evaluations = _services(stack, context, run, evaluator, model, updater)
        finite = FiniteCheck(owner.program, {"": model}, lambda _: _cure(lowered, updater), ranks)
        run.before_save = lambda: finite.check(run.done)
        if ranks.rank:  # own dropout on each rank; rank 0 draws as a single process would
            torch.manual_seed(torch.initial_seed() + ranks.rank)
        noise_scale, own = make_noise_scale(config, ranks), {"generators": Generators(device, ranks), **(parts or {})}
        for name, part in {"model": model, "updater": updater, "noise_scale": noise_scale, **own}.items():
            run.add(name, part)
        curves = UpdateCurves(config, objective, ranks, logger)
        num_profiled = config.summaries.profiled_iterations * ranks.is_writer
        iteration_done = stack.enter_context(profiled(run.folder, num_profiled))
        stack.enter_context(run)
        for update in range(run.done, total + 1):
            run.done = update
            evaluates = config.trainer.evaluate and (update == 0 or evaluation.due(update))
            _evaluate(run, evaluations, evaluates, model, device)
            if not run.is_saved and snapshot.due(update):
                run.save("snapshot", keep=total)  # all of them
            run.save_if_due()
            if update == total:
                break
            batch, due = batch_at(update), logger.due(update + 1)
            scale = noise_scale.measure(model, updater.loss, batch, update + 1, ranks) if due else {}
            metrics = yield Request(updater, batch, Clock(update / total, update, 0, update))
            finite.note(update + 1, updater.watched(metrics), check=due)
            if due:
                curves.show(update + 1, metrics, scale | updater.rates(), model, batch, evaluations)
            if is_due(update + 1, config.trainer.parameter_check_interval):
                ranks.check_equal(model, update + 1)
            iteration_done()
            logger.advance()
        if evaluations:
            run.finish(evaluations.wait)
    if ranks.is_writer:
        write_owned(run.folder / FINISHED, owner, total, {"updates": total})


def _services(
    stack: ExitStack, context: RunContext, run: RunState, evaluator: Evaluator, model: nn.Module, updater: Updater
) -> tuple[MetricLogger, Evaluations | None]:
    """Logger of a rank; rank 0 also gets the run record and the evaluations."""
    beyond = f"{run.folder} is at update {run.done}, beyond the {run.total} of this configuration"
    refuse(run.done > run.total, f"{beyond}: raise trainer.num_iterations (or what sets it), or give another name=")
    config, folder, is_writer, owner = context.config, run.folder, context.ranks.is_writer, Identity.of(run.description)
    progress = Progress(owner.program, run.total, run.done, "update", is_writer)
    logger = MetricLogger(folder if is_writer else None, run.done, config.summaries, run.total, progress, run.done)
    run.loggers.append(stack.enter_context(logger))
    if is_writer:
        (folder / FINISHED).unlink(missing_ok=True)  # of a run that is extended
        texts = record_session(config, folder, owner, run.done)
        logger.describe(texts | {"parameters": parameters_table(model, updater.optimizer)}, config)
    if not (is_writer and config.trainer.evaluate):
        return logger, None
    done = -1 if run.is_fresh else run.done
    place = (folder, "in_context", evaluator, config.evals, done, run.description, say)
    evaluations = Evaluations(*place, curves=config.summaries)
    return logger, stack.enter_context(evaluations)


def _evaluate(
    run: RunState, evaluations: Evaluations | None, due: bool, model: nn.Module, device: torch.device
) -> None:
    """Start an evaluation if one is `due`, and store results. Called by all ranks; rank 0 passes `evaluations`. The
    random numbers of dropout are unaffected."""
    if due:
        run.before_save()
    if evaluations and due:
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            evaluations.start(run.done, {"step": run.done, "model": model.state_dict()})
    if evaluations:
        evaluations.poll()


def _cure(lowered: str, updater: Updater) -> str:
    precise = "device.amp_dtype=bfloat16 or " if updater.scaler.is_enabled() else ""
    return f"{precise}a lower {lowered}optimizer.learning_rate or optimizer.max_gradient_norm"
