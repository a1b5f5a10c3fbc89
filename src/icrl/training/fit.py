"""The gradient loop: minimise an objective on batches that are functions of (seed, update)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from tqdm import tqdm

from icrl.collection.pace import interval_of, is_due
from icrl.config.paths import PROJECT
from icrl.config.schedules import Clock
from icrl.contracts import Batch, Json, Objective
from icrl.runs import checkpoint
from icrl.runs.device import recorded
from icrl.runs.distributed import Ranks
from icrl.runs.divergence import Watch, are_finite, diverged
from icrl.runs.evaluations import Evaluations, Evaluator
from icrl.runs.identity import Identity
from icrl.runs.profiling import Profiler
from icrl.runs.record import check_snapshots, parameters_table, texts, write_run_record
from icrl.runs.recovery import Recovery
from icrl.runs.summaries import Progress, Summaries
from icrl.training.board import Board
from icrl.training.updates import Updater

if TYPE_CHECKING:
    from icrl.config.root import Config

_LOWERED = {"train_ilql": "critic.reward_scale, ", "extract_policy": "awr.advantage_threshold, "}  # by program
_RESTORE = {"cpu": torch.set_rng_state, "cuda": torch.cuda.set_rng_state}


def fit(
    model: nn.Module,
    objective: Objective,
    batch_at: Callable[[int], Batch],
    look: Evaluator,
    config: Config,
    folder: Path,
    description: Json,
    device: torch.device,
    ranks: Ranks,
    *,
    after_step: Callable[[], None] | None = None,
    start: dict[str, Any] | None = None,
) -> None:
    """Train `model` in place for `trainer.num_iterations`, from the newest checkpoint in `folder` if there is one, or
    else from the state of another run, `start`.

    `batch_at(update)` is this rank's share of a batch. `look` evaluates a state `{"update", "model"}`. `after_step` is
    called after each step of the optimizer, and may change the model. Keeps the newest checkpoints (`last`), the one
    with the best evaluation (`best`) and for good one every so many samples (`snapshot`) in `folder`, with
    `description` beside them, whose `program` and `run` say whose they are, and TensorBoard curves over updates. A
    continued run ends with the bits of an undisturbed one. Raises `Stopped` when a signal asked the run to end, and
    `DivergedError`, on all ranks, when a loss, a gradient or a parameter is not finite: at the latest before the next
    state is saved or evaluated."""
    total, options, owner = config.trainer.num_iterations, config.summaries, Identity.of(description)
    model.train()
    updater = Updater(model, objective, config, device, ranks, after_step)
    found = checkpoint.load_newest(folder, "last", device)
    saved = found[0] if found else start
    done = saved["update"] if saved else -1
    snapshots = check_snapshots(options.code_snapshots, PROJECT)
    with ExitStack() as stack:
        progress = stack.enter_context(Progress(owner.program, total, max(done, 0), "update", ranks.is_writer))
        evaluations = summaries = None
        if ranks.is_writer:
            pace = {"flush_secs": options.flush_secs, "max_queue": options.max_queue}
            summaries = stack.enter_context(Summaries(folder, max(done, 0), **pace))
            session = write_run_record(folder, PROJECT, recorded(config), sys.argv, snapshots, owner, max(done, 0))
            summaries.texts(texts(session) | {"parameters": parameters_table(model, updater.optimizer)})
            if config.trainer.evaluate:
                evaluations = stack.enter_context(
                    Evaluations(folder, "in_context", look, config.evals, done, description, tqdm.write)
                )
        board = Board(config, objective, ranks, summaries, progress)
        fitting = Fitting(model, updater, board, ranks, device, folder, description, max(done, 0), owner.program)
        if saved:
            fitting.load_state_dict(saved)
        profiler = stack.enter_context(Profiler(folder, options.profiled_iterations * ranks.is_writer, tqdm.write))
        on_crash = config.checkpoints.on_crash if ranks.is_writer else "skip"
        recovery = stack.enter_context(Recovery(on_crash, fitting.save_crash))
        _run(fitting, batch_at, evaluations, config, progress, profiler, recovery, resumed=found is not None)


class Fitting:
    """What changes with every update, and survives it in checkpoints."""

    def __init__(
        self,
        model: nn.Module,
        updater: Updater,
        board: Board,
        ranks: Ranks,
        device: torch.device,
        folder: Path,
        description: Json,
        done: int,
        program: str,
    ) -> None:
        self.model, self.updater, self.board, self.ranks = model, updater, board, ranks
        self.program, self.watch = program, Watch()
        self.device, self.folder, self.description = device, folder, description
        self.done = done  # updates
        if ranks.rank:  # dropout of their own for all but the first, which goes on as a run of one process would
            torch.manual_seed(torch.initial_seed() + ranks.rank)

    def evaluate(self, evaluations: Evaluations | None) -> None:
        """Start an evaluation of the model as it is; all ranks call it, the first with `evaluations`. Dropout goes on
        as if there were none."""
        self.check()
        if evaluations is None:
            return
        with torch.random.fork_rng([self.device] if self.device.type == "cuda" else []):
            evaluations.start(self.done, {"update": self.done, "model": self.model.state_dict()})

    def save(self, keep: int, kind: str = "last") -> None:
        """Write a checkpoint of this `kind`; all ranks call it, and the first writes."""
        self.check()
        generators = {device: self.ranks.gather(state) for device, state in self._generators().items()}
        if self.ranks.is_writer:
            checkpoint.save(self.folder, kind, self.done, self._state(generators), self.description, keep)

    def check(self) -> None:
        """Raise `DivergedError`, on all ranks that call it, where losses, gradients or parameters are not finite."""
        self.check_updates()
        if self.ranks.any(not are_finite(self.model.parameters())):
            raise diverged(f"{self.program}, after update {self.done}", ["parameters"], self._cure)

    def check_updates(self) -> None:
        """As `check`, of losses and gradients alone."""
        if found := self.watch.first_bad(self.ranks):
            update, bad = found
            raise diverged(f"{self.program}, in update {update}", bad, self._cure)

    @property
    def _cure(self) -> str:
        precise = "device.amp_dtype=bfloat16 or " if self.updater.scaler.is_enabled() else ""
        lowered = f"{_LOWERED.get(self.program, '')}optimizer.learning_rate or optimizer.max_gradient_norm"
        return f"{precise}a lower {lowered}"

    def save_crash(self, error: str) -> None:
        """Put the state of a failed run aside, for a look at it; no run goes on from it."""
        generators = {kind: [state] for kind, state in self._generators().items()}  # the other ranks may be gone
        description = self.description | {"error": error}
        checkpoint.save(self.folder, "crash", self.done, self._state(generators), description, 1)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.updater.load_state_dict(state["updater"])
        self.board.load_state_dict(state["board"])
        for kind in self._generators():
            states = state["generators"].get(kind, [])
            if self.ranks.rank < len(states):  # ranks may be more now
                _RESTORE[kind](states[self.ranks.rank].cpu())

    def _generators(self) -> dict[str, Tensor]:
        """States of this rank's generators behind dropout, by kind of device."""
        states = {"cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            states["cuda"] = torch.cuda.get_rng_state(self.device)
        return states

    def _state(self, generators: dict[str, list[Tensor]]) -> dict[str, Any]:
        return {
            "update": self.done,
            "model": self.model.state_dict(),
            "updater": self.updater.state_dict(),
            "board": self.board.state_dict(),
            "generators": generators,
        }


def _run(
    fitting: Fitting,
    batch_at: Callable[[int], Batch],
    evaluations: Evaluations | None,
    config: Config,
    progress: Progress,
    profiler: Profiler,
    recovery: Recovery,
    *,
    resumed: bool,
) -> None:
    total, ranks, checkpoints = config.trainer.num_iterations, fitting.ranks, config.checkpoints
    per_evaluation = interval_of(config.evals.num_evals, config.evals.eval_interval, total)
    per_checkpoint = interval_of(checkpoints.num_checkpoints, checkpoints.checkpoint_interval, total)
    per_snapshot = -(-checkpoints.snapshot_interval // config.trainer.mini_batch_size)  # updates
    for update in range(fitting.done, total + 1):
        fitting.done, last = update, update == total
        if config.trainer.evaluate and (update == 0 or last or is_due(update, per_evaluation)):
            fitting.evaluate(evaluations)
        if evaluations:
            evaluations.poll()
        if not resumed and update and is_due(update, per_snapshot):
            fitting.save(total, "snapshot")  # all of them
        asked = ranks.any(recovery.save_now)
        if not resumed and (last or asked or (update and is_due(update, per_checkpoint))):
            fitting.save(checkpoints.keep_last)
        if asked:
            recovery.saved(f"update {update} of {total}", ranks.any(recovery.stop_now))
        resumed = False
        if last:
            break
        _one_update(fitting, batch_at(update), update, total)
        if is_due(update + 1, config.trainer.parameter_check_interval):
            ranks.check_equal(fitting.model, update + 1)
        profiler.step()
        progress.advance(1)
    if evaluations:
        recovery.finish(evaluations.wait, f"update {total} of {total}")


def _one_update(fitting: Fitting, batch: Batch, update: int, total: int) -> None:
    board, updater, model = fitting.board, fitting.updater, fitting.model
    due = board.is_due(update + 1)
    others = board.noise_scale(update + 1, model, updater.loss, batch) if due else {}
    metrics = updater.update(batch, Clock(update / total, update, 0, update))
    fitting.watch.note(update + 1, updater.watched(metrics))
    if due or fitting.watch.is_full:
        fitting.check_updates()
    if due:
        board.show(update + 1, metrics, others | updater.rates(), model, batch)
