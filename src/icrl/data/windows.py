"""Windows of histories with a weight for each step, drawn from a mixture of stores. A window never leaves its row.

N rows, B windows, T steps in a window, S stores.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor

from icrl.config.options import NO_EFFECT, OneOrMore, Options, option, refuse
from icrl.contracts import Batch, Json
from icrl.data.columns import MappedSteps, step_dtypes
from icrl.data.history_store import DamagedHistoriesError, Histories, open_histories
from icrl.data.lives import ENDS, FLOATS, KeptSteps, Labels, Rewards, RowColumns
from icrl.nn.encoders import Moments
from icrl.randomness import cumulative, draw, integers, mix, uniform
from icrl.runs.files import check_same, has_form
from icrl.runs.processes import say
from icrl.spaces import EnvSpec, num_channels

if TYPE_CHECKING:
    from icrl.app.root import Config
    from icrl.objectives.imitation import ObjectiveConfig


class DataConfig(Options):
    weights: list[Annotated[float, Field(gt=0)]] = option(
        [], "relative sampling weight of each history store ([]: proportional to its number of windows)"
    )
    history_len: int = option(0, "number of env steps per learner to use, from the start (0: all recorded)", ge=0)
    keep_every: Annotated[list[Annotated[int, Field(ge=1, le=1000)]], OneOrMore] = option(
        [1, 4, 16], "keep only every k-th episode, so that a window shows more of a history; a list: once for each k"
    )
    kept_steps: int = option(
        320, "steps to use of the episodes kept for each k, the same number for every k (0: all)", ge=0
    )
    min_final_success: float = option(
        0.5, "leave out learners whose success over the last tenth of their history is lower", ge=0, le=1
    )
    num_development_tasks: int = option(
        4,
        "training tasks that the model does not learn from; recipes and checkpoints are chosen on them (0: none; if "
        "data.development is not random, it only has to be above 0)",
        ge=0,
    )
    development: Literal["random", "region"] = option(
        "random",
        "rule of the development tasks. random: the last training tasks; region: all training tasks in a region like "
        "the one that tasks.split holds out",
    )

    former = {"symmetries": False, "development_tasks": list[int](), "storage": NO_EFFECT}

    @model_validator(mode="after")
    def _check(self) -> Self:
        refuse(not self.keep_every, "data.keep_every=[] must have at least one number")
        twice = len(set(self.keep_every)) < len(self.keep_every)
        refuse(twice, f"data.keep_every={self.keep_every}: must have no duplicates")
        return self


_SET_ASIDE = ("num_development_tasks", "development")  # options that set tasks aside
_WORLD = ("env", "tasks")
_CHUNK = 2**16  # steps that are in float64 at a time


class Windows:
    """All windows of `context_len` steps of the selected rows, which are read from disk.

    For each k of `data.keep_every`, each row becomes k rows: one with episodes 0, k, 2k, ..., one with 1, k + 1, ...
    So a window spans k times as much of a life, and no episode is wasted."""

    def __init__(
        self,
        histories: Histories,
        config: DataConfig,
        objective: ObjectiveConfig,
        tasks: list[int],
        context_len: int,
        device: torch.device,
        rewards: Rewards | None = None,
        labels: Labels | None = None,
    ) -> None:
        """Windows of the rows of `tasks` (indices into all tasks). `rewards` and `labels`, if given, replace the
        recorded rewards to train on and the recorded optimal actions. Raises `ConfigError` if no window is left, or if
        `objective` needs optimal actions and they are unknown."""
        self.device, self.length, self.spec, folder = device, context_len, histories.spec, histories.folder
        self._as_recorded = rewards is None
        self._dtypes = step_dtypes(self.spec) | dict.fromkeys(FLOATS, torch.float32) | dict.fromkeys(ENDS, torch.int64)
        num_envs, num_steps = histories.manifest["rows"]["num_envs"], histories.columns["obs"].shape[1]
        steps = min(config.history_len // num_envs or num_steps, num_steps)
        least = f"must be at least {num_envs}, a step for each environment of a learner in {folder}, or 0 for all"
        refuse(0 < config.history_len < num_envs, f"data.history_len={config.history_len}: {least}")
        rows = objective.rows(histories, _selected_rows(histories, config, tasks), steps)
        self._steps, kept = RowColumns(histories, config, objective, rows, steps, rewards, labels).steps()
        self._kept = KeptSteps.of(kept, config.keep_every, len(rows), steps)
        usable = (lengths := self._kept.row_length.numpy()) >= context_len
        given = f"data.keep_every={config.keep_every} and data.kept_steps={config.kept_steps}"
        longest = f"the longest row of {folder}, {lengths.max(initial=0)} steps with {given}"
        window = f"a window of {context_len} steps (trainer.mini_batch_length, or model.context_len if that is 0)"
        refuse(not usable.any(), f"{window} is longer than {longest}: shorten the window, or give data.keep_every=[1]")
        starts, num_windows = (lengths.cumsum() - lengths)[usable], lengths[usable] - context_len + 1
        self.num_windows, self.num_rows = int(num_windows.sum()), int(usable.sum())
        self._row_end = torch.from_numpy(num_windows.cumsum())  # windows before the end of each row
        self._row_shift = torch.from_numpy(starts - (num_windows.cumsum() - num_windows))
        self._offsets = torch.arange(context_len)

    def at(self, window: Tensor) -> Batch:
        """The windows with these numbers `[B]`, from 0 to num_windows - 1.

        A number is turned into places among the kept steps, and these into steps among all (`KeptSteps`). With rows of
        5 kept steps and windows of 3, window 3 is the first of row 1, at places 5, 6, 7."""
        row = torch.searchsorted(self._row_end, window, right=True)
        place = (window + self._row_shift[row])[:, None] + self._offsets  # [B, T]
        columns = self._steps.read(self._kept.steps(place))
        columns["reward"] = self._values(columns["reward"])
        columns.setdefault("training_reward", columns["reward"])
        columns.setdefault("weight", torch.ones(place.shape))
        return Batch(**{name: part.to(self.device, self._dtypes[name]) for name, part in columns.items()})

    def split(self, name: str, size: int) -> Iterator[Tensor]:
        """All steps of a column, at most `size` of them at a time, `[steps, ...]`."""
        name = "reward" if name == "training_reward" and self._as_recorded else name
        for chunk in self._steps.chunks(name):
            for piece in torch.from_numpy(np.array(chunk)).flatten(0, 1).split(size):
                yield (self._values(piece) if name == "reward" else piece).to(self.device)

    def _values(self, reward: Tensor) -> Tensor:
        """Rewards, from the column of a store, which has their indices if they are listed."""
        return self.spec.reward_of(reward.long()) if self.spec.reward_values else reward


def _selected_rows(histories: Histories, config: DataConfig, tasks: list[int]) -> np.ndarray:
    """Indices of the rows of `tasks` whose learner reached `data.min_final_success`; all if no success is defined."""
    of_tasks = np.isin(histories.row_tasks, tasks)
    if not config.min_final_success:
        return np.flatnonzero(of_tasks)
    success = np.repeat(histories.final_success(), histories.manifest["rows"]["num_envs"])  # [rows]
    rows = np.flatnonzero(of_tasks & (success >= config.min_final_success))
    best, spec = success[of_tasks].max(initial=0), histories.spec
    if not best and spec.success in ("reward", "goal") and max(spec.reward_values or (0.0,)) <= 0:
        why = f"data.min_final_success={config.min_final_success} is left out: the model learns from all of them"
        say(f"no agent of {histories.folder} ended with a success, so {why}")
        return np.flatnonzero(of_tasks)
    none = f"no learner of {histories.folder} reaches data.min_final_success={config.min_final_success}"
    refuse(not len(rows), f"{none}: the best one reaches {best:.3f}; 0 keeps all")
    return rows


class Mixture:
    """Windows of S stores: a store is drawn by its share, then one of its windows uniformly."""

    def __init__(self, parts: Sequence[Windows], weights: Sequence[float]) -> None:
        """`weights` are relative; if empty, every window of every store is equally likely."""
        self.parts = parts
        shares = torch.tensor(weights or [part.num_windows for part in parts], dtype=torch.float64)
        self.shares: list[float] = (shares / shares.sum()).tolist()  # [S]
        self._steps_up = cumulative(shares / shares.sum())
        self.num_windows = sum(part.num_windows for part in parts)

    def batch(self, seed: int, t: int, size: int, rank: int = 0, num_ranks: int = 1) -> Batch:
        """Batch `t` of the endless sequence of `seed`, `size` windows; rank r of n gets the windows r, r + n, ..."""
        lanes = torch.arange(rank, size, num_ranks)
        key = mix(torch.full_like(lanes, seed), t)
        store = draw(self._steps_up, uniform(mix(key, 1), lanes))  # [B]
        drawn = ((self.parts[number], store == number) for number in store.unique().tolist())
        each = [part.at(integers(key, lanes, part.num_windows)[own]) for part, own in drawn]
        place = store.argsort(stable=True).argsort()
        return Batch(*(torch.cat(columns)[place] for columns in zip(*each, strict=True)))


def moments_of(mixture: Mixture) -> Moments:
    """Moments over all steps of all selected rows, each counted once, on the device of the windows."""
    parts = mixture.parts
    return _moments(parts[0].spec, lambda name: (steps for part in parts for steps in part.split(name, _CHUNK)))


def recorded_moments(stores: Sequence[Histories], tasks: list[int]) -> Moments:
    """Moments over all steps of all rows of `tasks`, those too that are shorter than a window, each counted once."""

    def steps(name: str) -> Iterator[Tensor]:
        for store in stores:
            rows = np.flatnonzero(np.isin(store.row_tasks, tasks))
            for chunk in MappedSteps(store.columns, {}, rows, store.columns[name].shape[1]).chunks(name):
                yield from torch.from_numpy(np.array(chunk)).flatten(0, 1).split(_CHUNK)

    return _moments(stores[0].spec, steps)


def _moments(spec: EnvSpec, steps: Callable[[str], Iterable[Tensor]]) -> Moments:
    """Moments of a world with `spec`, given all steps of a column, some at a time."""

    def of(name: str, channels: int) -> tuple[Tensor, Tensor]:
        return mean_and_std(lambda: (part.reshape(-1, channels) for part in steps(name)))

    return Moments(*of("obs", num_channels(spec.observation_space)), of("reward", 1)[1])


def mean_and_std(chunks: Callable[[], Iterable[Tensor]]) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation (divisor N) of each channel of all `chunks()` `[N, C]` together, float32 `[C]` each.
    They are summed in float64, in a second pass around the mean, so that numbers far from 0 lose no digits."""
    total = sum(len(chunk) for chunk in chunks())
    mean = torch.stack([chunk.double().sum(0) for chunk in chunks()]).sum(0) / total
    squares = torch.stack([(chunk.double() - mean).square().sum(0) for chunk in chunks()])
    return mean.float(), (squares.sum(0) / total).sqrt().float()


def open_stores(config: Config) -> list[Histories]:
    """Open and check all stores that `config.histories` names. Raises the errors of `open_histories`, and `ConfigError`
    unless a single store was recorded with this configuration. Several stores may have different sources, but must
    share the world and the task split, so that no training task of one is held out in another."""
    stores = [open_histories(folder) for folder in config.histories_folders]
    for store in stores:
        recorded = store.manifest["config"]
        if not has_form(recorded, {"source": {"name": str}, "data": dict}):
            raise DamagedHistoriesError(f"{store.folder} lacks the options of its source and data")
        by_agents = (store.manifest["owner"] or {}).get("program", "train_agents") == "train_agents"
        chosen = by_agents and len(stores) == 1  # those of others record no options that anyone chose
        check_same(config, recorded, (*_WORLD, "source") if chosen else _WORLD, str(store.folder))
        if recorded["source"].get("task_change"):  # its streams went to all other training tasks
            both = (recorded["data"], dict(config.data))
            then, now = ({name: each.get(name) for name in _SET_ASIDE} for each in both)
            moved = f"in {store.folder} streams moved between the training tasks of {then}"
            refuse(then != now, f"data: {now}, but {moved}")
        for part in _WORLD:  # the same options may have meant something else to another version
            one, two = stores[0].manifest[part], store.manifest[part]
            for name in sorted(one | two):
                then, now = (reprlib.repr(each.get(name)) for each in (one, two))
                where = f"{part}.{name} is {now} in {store.folder} and {then} in {stores[0].folder}"
                refuse(one.get(name) != two.get(name), f"{where}: histories of one mixture must agree")
    return stores


def described(stores: Sequence[Histories]) -> Json:
    """Names and checksums of the stores, as checkpoints keep them."""
    return [{"name": store.folder.name, "sha256": store.checksum} for store in stores]


def check_stores(stores: Sequence[Histories], before: Json, folder: Path) -> None:
    """Raise `ConfigError` unless these are the stores `before` (as `described`) that the run in `folder` learned from,
    in the same order. Their names may differ."""
    pair = (before, described(stores))
    then, now = (", ".join(f"{one['name']} (sha256 {one['sha256'][:12]})" for one in each) for each in pair)
    changed = [one["sha256"] for one in pair[0]] != [one["sha256"] for one in pair[1]]
    what = f"{folder} was made with histories {then}, but this configuration has {now}"
    refuse(changed, f"{what}: give those here too, or another name=")
