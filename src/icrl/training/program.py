"""What all programs that fit a model to windows of histories do around it: open the histories, hold the folder,
continue or say that all is done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn

from icrl.config.options import replace
from icrl.config.paths import PROJECT
from icrl.contracts import ConfigError, EnvSpec, Json, Objective
from icrl.data.history_store import Histories
from icrl.data.mixture import Mixture, check_stores, described, open_stores
from icrl.data.rewards import RewardPlugin
from icrl.data.windows import Windows
from icrl.envs import make_env
from icrl.envs.tasks import development_of
from icrl.runs.checkpoint import FINISHED, check_end, check_run, load_newest
from icrl.runs.device import prepare, recorded
from icrl.runs.distributed import Ranks, joined
from icrl.runs.evaluations import Evaluator
from icrl.runs.files import only_writer
from icrl.runs.identity import Identity, check_owner, check_same, identity_of, read_owned, write_owned
from icrl.runs.memory import Need, check_memory
from icrl.runs.record import check_snapshots
from icrl.training.critics import check_described
from icrl.training.fit import fit
from icrl.training.needs import evaluation_amid

if TYPE_CHECKING:
    from icrl.config.root import Config, ModelConfig, ObjectiveConfig


class RunContext(NamedTuple):
    """Where one process of a program works, and on what."""

    config: Config
    folder: Path
    stores: list[Histories]
    device: torch.device
    ranks: Ranks
    owner: Identity  # the run
    inputs: Json  # checksums of what it is made of
    before: Json | None  # what the newest checkpoint says of itself, where a run is continued

    @property
    def tasks(self) -> Json:
        """The split, with the training tasks that are set aside as `development`."""
        split = self.stores[0].manifest["tasks"]
        return split | {"development": development_of(split["train"], self.config.data.num_development_tasks)}

    def spec(self) -> EnvSpec:
        return make_env(self.config.env, self.device).spec

    def check_memory(self, needs: Sequence[Need], model: ModelConfig) -> None:
        """Raise `ConfigError` where the device has less memory than training `needs`, or than evaluations amid it do of
        a `model` of this form."""
        check_memory(self.config, needs, self.device)
        if self.config.trainer.evaluate and self.ranks.is_writer:
            played = len(self.tasks["development"])
            needs = evaluation_amid(self.config, model, self.spec(), played, self.device)
            check_memory(self.config, needs, self.device)

    def windows(self, objective: ObjectiveConfig, plugin: RewardPlugin | None = None) -> Mixture:
        """The windows of all training tasks that are not set aside, with the weights of `objective` and the rewards of
        `plugin`."""
        config, tasks = self.config, self.tasks
        learned = [task for task in tasks["train"] if task not in tasks["development"]]
        length = config.trainer.mini_batch_length or config.model.context_len
        parts = [Windows(store, config.data, objective, learned, length, self.device, plugin) for store in self.stores]
        mixture = Mixture(parts, config.data.weights)
        for store, part, share in zip(self.stores, parts, mixture.shares, strict=True):
            what = f"{part.num_windows:,} windows of {length} steps from {part.num_rows:,} rows of {store.folder}"
            announce(f"{what}, drawn with probability {share:.3f}", self.ranks)
        return mixture

    def fit(
        self,
        model: nn.Module,
        objective: Objective,
        mixture: Mixture,
        look: Evaluator,
        num_updates: int,
        about: Json | None = None,
        after_step: Callable[[], None] | None = None,
        start: dict[str, Any] | None = None,
    ) -> int:
        """Fit `model` to batches of `mixture`, see `fit.fit`; returns `num_updates`. Checkpoints say of themselves what
        is needed to build the model anew, and what is `about` it."""
        config, ranks, size = self.config, self.ranks, self.config.trainer.mini_batch_size
        description = self.owner._asdict() | {
            "inputs": self.inputs,
            "config": recorded(config),
            "env": self.spec()._asdict(),
            "tasks": self.tasks,
            "histories": described(self.stores),
        }
        fit(
            model,
            objective,
            lambda update: mixture.batch(config.seed, update, size, ranks.rank, ranks.size),
            look,
            replace(config, trainer=replace(config.trainer, num_iterations=num_updates)),
            self.folder,
            description | (about or {}),
            self.device,
            ranks,
            after_step=after_step,
            start=start,
        )
        return num_updates


def unweighted(objective: ObjectiveConfig) -> ObjectiveConfig:
    """For those who weigh steps themselves, or not at all."""
    return replace(objective, name="ad", weighting="none")


def compared(config: Config, *own: str) -> tuple[str, ...]:
    """Groups of options that a continued run must have as the run before it: those of every program, its `own`, and who
    played where it was evaluated. The source is that of the histories, which must be the same."""
    groups = ("seed", "env", "tasks", "data", "model", "optimizer", "trainer", "device", *own)
    return (*groups, "policy", "evals") if config.trainer.evaluate else groups


def run_program(
    config: Config,
    program: str,
    folder: Path,
    groups: Sequence[str],
    train: Callable[[RunContext], int],
    check: Callable[[Json], None] = lambda _: None,
    inputs: Callable[[Json | None], Json] = lambda _: {},
) -> Path:
    """Let `train` make a model of `program` in `folder`, or continue to; returns the folder. `train` says how many
    updates it made, `inputs` by what the newest checkpoint says of itself what the model is made of beside histories.

    Raises `ConfigError` where the folder has a model of other histories, of a configuration that differs in `groups`,
    or that `check` refuses by what its checkpoint says of itself; `PipelineError` where it has files of another run."""
    check_snapshots(config.summaries.code_snapshots, PROJECT)
    with joined(prepare(config)) as (ranks, device):
        ranks.check_divides(config.trainer.mini_batch_size, config.trainer.gradient_accumulation_steps)
        stores = open_stores(config)
        with only_writer(folder) if ranks.is_writer else nullcontext():
            found, finished = load_newest(folder, "last", torch.device("cpu")), folder / FINISHED
            before = found[1]["description"] if found else None
            if before and Identity.of(before).program != program:
                before = None
            if before:
                check_described(before, folder)
                check_same(config, before["config"], groups, str(folder))
                check_stores(stores, before["histories"], folder)
                check(before)
            made_of = inputs(before) | {"histories": [store.checksum for store in stores]}
            owner = identity_of(program, config, groups, made_of)
            if found:
                check_run(folder, found[1], owner)
            if finished.exists():
                if found is None:
                    raise ConfigError(f"{folder} is finished and its checkpoints are gone: remove it too")
                _, whose, updates = read_owned(finished, {})
                check_owner(finished, whose, owner)
                check_end(finished, updates, found[1]["step"])
                announce(f"all {updates} updates of {config.name} are done: {folder}", ranks)
                return folder
            updates = train(RunContext(config, folder, stores, device, ranks, owner, made_of, before))
            if ranks.is_writer:
                write_owned(finished, owner, updates, {"updates": updates})
    announce(f"checkpoints and TensorBoard curves: {folder}", ranks)
    return folder


def announce(line: str, ranks: Ranks) -> None:
    if ranks.is_writer:
        print(line)
