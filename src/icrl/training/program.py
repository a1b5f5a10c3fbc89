"""Shared training driver: open the histories, lock the run folder, resume, or report that the run is finished."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch

from icrl.config.options import replace, walk
from icrl.config.schedules import needs_length
from icrl.contracts import Batch, ConfigError, Json
from icrl.data.history_store import Histories
from icrl.data.lives import Rewards
from icrl.data.windows import Mixture, Windows, check_stores, described, open_stores
from icrl.envs import make_env
from icrl.envs.tasks import development_of
from icrl.nn.gpt import check_discrete, check_spaces
from icrl.objectives import labels_makers, objective_class
from icrl.objectives.imitation import ObjectiveConfig
from icrl.runs.checkpoint import FINISHED, check_described, check_end, check_run, load_newest
from icrl.runs.device import prepare
from icrl.runs.distributed import Ranks, process_group
from icrl.runs.files import Identity, check_owner, check_same, identity_of, only_writer, read_owned, recorded_value
from icrl.runs.metrics import check_writers
from icrl.spaces import EnvSpec

if TYPE_CHECKING:
    from icrl.app.root import Config

UNWEIGHTED = ObjectiveConfig(weighting="none")  # for objectives that do not use the weights of windows


class RunContext(NamedTuple):
    """Context of one process of a run: options, folder, device, rank and training histories."""

    config: Config
    folder: Path
    device: torch.device
    ranks: Ranks
    description: Json  # stored with checkpoints: the run, its options, and the data to build the model
    stores: list[Histories]

    @property
    def tasks(self) -> Json:
        """Task split, with the training tasks that are set aside as `development`."""
        return self.description["tasks"]

    def spec(self) -> EnvSpec:
        with closing(make_env(self.config.env, self.device)) as env:
            return env.spec

    def windows(self, objective: ObjectiveConfig, rewards: Rewards | None = None) -> Mixture:
        """Windows of all training tasks that are not set aside, with the weights of `objective` and the rewards of
        another kind. Raises `ConfigError` unless all ranks get as many of each batch."""
        self.ranks.check_divides(self.config.trainer.mini_batch_size, self.config.trainer.gradient_accumulation_steps)
        learned = [task for task in self.tasks["train"] if task not in self.tasks["development"]]
        mixture = windows_of(self.config, self.stores, learned, objective, self.spec(), self.device, rewards)
        thinned = f", thinned by data.keep_every={every}," if (every := self.config.data.keep_every) != [1] else ""
        for store, part, share in zip(self.stores, mixture.parts, mixture.shares, strict=True):
            what = f"{part.num_windows:,} windows of {part.length} steps from {part.num_rows:,} rows{thinned}"
            what += f" of {store.folder}"
            announce(what + (f", drawn with probability {share:.3f}" if len(self.stores) > 1 else ""), self.ranks)
        return mixture

    def batches(self, mixture: Mixture) -> Callable[[int], Batch]:
        """Function from an update to this rank's share of its batch, which is read during the update before."""
        seed, size, ranks = self.config.seed, self.config.trainer.mini_batch_size, self.ranks
        return ahead(lambda update: mixture.batch(seed, update, size, ranks.rank, ranks.size))


def windows_of(
    config: Config,
    stores: Sequence[Histories],
    tasks: list[int],
    objective: ObjectiveConfig,
    spec: EnvSpec,
    device: torch.device,
    rewards: Rewards | None = None,
) -> Mixture:
    """Windows of the rows of `tasks`, as `config` cuts them, with weights and labels of `objective` and `rewards`."""
    labels, length = None, config.trainer.mini_batch_length or config.model.context_len
    if objective.labels != "planner":
        labels = labels_makers()[objective.labels](objective.labels, config, spec)
    parts = [Windows(store, config.data, objective, tasks, length, device, rewards, labels) for store in stores]
    return Mixture(parts, config.data.weights)


def ahead(batch_at: Callable[[int], Batch]) -> Callable[[int], Batch]:
    """The same function for calls with ascending numbers, with the next batch made by a thread meanwhile."""
    thread, made = ThreadPoolExecutor(1), dict[int, Future[Batch]]()

    def batch(update: int) -> Batch:
        for number in (update, update + 1):
            if number not in made:
                made[number] = thread.submit(batch_at, number)
        return made.pop(update).result()

    return batch


def check_stage_two(config: Config, spec: EnvSpec) -> None:
    """Raise `ConfigError` for options of stage two that the spaces of a world do not allow."""
    check_spaces(config.model, spec)
    objective_class(config.objective.name)(config.objective, spec)  # raises as well
    if config.objective.labels != "planner":
        check_discrete(f"objective.labels={config.objective.labels}", spec)


def compared(config: Config, *own: str) -> tuple[str, ...]:
    """Groups of options that must not change when a run resumes: those of every program, its `own`, and the policy if
    it is evaluated. The source is not compared, because the histories must be the same."""
    groups = ("seed", "env", "tasks", "data", "model", "optimizer", "trainer", "device", *own)
    return (*groups, "policy", "evals") if config.trainer.evaluate else groups


@contextmanager
def open_run(
    config: Config,
    program: str,
    folder: Path,
    groups: Sequence[str],
    inputs: Callable[[Json | None], Json] = lambda _: {},
    rates: str = "optimizer",
) -> Iterator[RunContext | None]:
    """Lock `folder` for a run of `program`, new, resumed or extended. Yields None if all updates are done.

    `inputs` maps the description of the newest checkpoint, or None, to checksums of the inputs other than histories;
    `rates` is the group of its rates. Raises `ConfigError` if the model in the folder has other histories or other
    options in `groups`, and `PipelineError` if the folder has files of another run."""
    check_writers(config.summaries)
    with process_group().joined(prepare(config)) as (ranks, device):
        if not ranks.is_writer:
            ranks.any(False)  # waits until the writer has opened and checked them
        stores = open_stores(config)
        if ranks.is_writer:
            ranks.any(False)
        with only_writer(folder) if ranks.is_writer else nullcontext():
            newest, finished = load_newest(folder, "last", torch.device("cpu")), folder / FINISHED
            before, extended = newest[1]["description"] if newest else None, False
            if before and Identity.of(before).program == program:
                check_described(before, folder)
                acting = recorded_value(before["config"], "policy.model") or config.policy.model
                config = replace(config, policy=replace(config.policy, model=acting))  # no training depends on it
                check_same(config, before["config"], groups, str(folder), budgets=False)
                extended = check_length(config, before["config"], groups, rates, str(folder))
                check_stores(stores, before["histories"], folder)
            else:
                before = None
            made_of = inputs(before) | {"histories": [store.checksum for store in stores]}
            owner = identity_of(program, config, groups, made_of)
            if newest:
                check_run(folder, newest[1], owner)
            if finished.exists():
                if newest is None:
                    raise ConfigError(f"{folder} is finished but has no checkpoints: restore them, or remove it")
                _, whose, updates = read_owned(finished, {})
                check_owner(finished, whose, owner)
                check_end(finished, updates, newest[1]["step"])
                if not extended:
                    announce(f"all {updates} updates of {config.name} are done: {folder}", ranks)
                    yield None
                    return
            split = stores[0].manifest["tasks"]
            with closing(make_env(config.env, device)) as env:
                development, spec = development_of(env, config, split["train"]), env.spec
            description = owner._asdict() | {
                "inputs": made_of,
                "config": config.model_dump(),
                "env": spec.to_json(),
                "tasks": split | {"development": development},
                "histories": described(stores),
            }
            yield RunContext(config, folder, device, ranks, description, stores)
    announce(f"checkpoints and curves: {folder}", ranks)


def check_length(config: Config, before: Json, groups: Sequence[str], rates: str, where: str) -> bool:
    """True if a run with the configuration `before` gets another length now. Raises `ConfigError` if a schedule in the
    group `rates` depends on its length, because then the updates so far would have had other rates."""
    budgets = {key: value for key, value, field in walk(config) if field.is_budget and key.split(".")[0] in groups}
    own = {key: value for key, value in budgets.items() if key.startswith(f"{rates}.")}
    budgets = own or budgets  # trials have a length of their own
    changed = [key for key, value in budgets.items() if recorded_value(before, key) != value]
    for name, rate in getattr(config, rates):
        if changed and needs_length(rate):
            then = f"{changed[0]}={recorded_value(before, changed[0])}"
            raise ConfigError(
                f"{where} was made with {then}, and the schedule {rates}.{name}={rate} depends on it, because its "
                f"progress is percent: give {then} here too, or another name=. A run with a constant rate, or with "
                "progress: updates, can be extended"
            )
    return bool(changed)


def announce(line: str, ranks: Ranks) -> None:
    """Print a line on rank 0 only."""
    if ranks.is_writer:
        print(line)
