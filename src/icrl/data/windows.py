"""Windows of histories with a weight for each step, drawn from a mixture of stores. A window never leaves its row.

N rows, B windows, T steps in a window, S stores.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor

from icrl.config.options import OneOrMore, Options, option, refuse
from icrl.contracts import Batch, Json
from icrl.data.columns import ACTIONS, OBSERVATIONS
from icrl.data.history_store import Histories, open_histories
from icrl.data.rewards import Booleans, Floats, Integers, RewardPlugin, training_rewards
from icrl.envs.rooms import symmetries
from icrl.randomness import cumulative, draw, integers, mix, uniform
from icrl.runs.files import check_same
from icrl.spaces import EnvSpec

if TYPE_CHECKING:
    from icrl.config.root import Config
    from icrl.objectives.imitation import ObjectiveConfig


class DataConfig(Options):
    weights: list[Annotated[float, Field(gt=0)]] = option(
        [], "relative sampling weight of each history store ([]: proportional to its number of windows)"
    )
    history_len: int = option(0, "number of env steps per learner to use, from the start (0: all recorded)", ge=0)
    keep_every: Annotated[list[Annotated[int, Field(ge=1, le=1000)]], OneOrMore] = option(
        [1, 4, 16], "keep every k-th episode of a history, so that progress shows inside a window; for each k of a list"
    )
    kept_steps: int = option(320, "steps to use of the episodes kept for each k, equally many for each (0: all)", ge=0)
    min_final_success: float = option(
        0.5, "leave out learners whose success over the last tenth of their history is lower", ge=0, le=1
    )
    symmetries: bool = option(
        False,
        "turn and mirror the rows of a square room by its eight symmetries, with their actions; goals then also lie "
        "where held-out ones do",
    )
    num_development_tasks: int = option(
        4,
        "training tasks that the model does not learn from; recipes and checkpoints are chosen on them (0: none; with "
        "another data.development than random it only has to be above 0)",
        ge=0,
    )
    development: Literal["random", "region", "list"] = option(
        "random",
        "rule of the development tasks. random: the last training tasks; list: data.development_tasks; with "
        "tasks.split=quadrant, ring or checkerboard also region: all training tasks in a region like the held-out one",
    )
    development_tasks: Annotated[list[Annotated[int, Field(ge=0)]], OneOrMore] = option(
        [], "numbers of the development tasks if data.development is list"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        refuse(not self.keep_every, "data.keep_every=[] must have at least one number")
        listed, given = self.development == "list", f"data.development_tasks={self.development_tasks}"
        refuse(listed and not self.development_tasks, f"{given}: data.development=list needs at least one task")
        refuse(
            bool(self.development_tasks) and not listed,
            f"{given} is for data.development=list, and this is data.development={self.development}",
        )
        refuse(len(set(self.development_tasks)) < len(self.development_tasks), f"{given}: no task may be there twice")
        twice = len(set(self.keep_every)) < len(self.keep_every)
        refuse(twice, f"data.keep_every={self.keep_every}: must have no number twice")
        return self


_SET_ASIDE = ("num_development_tasks", "development", "development_tasks")  # options that set tasks aside
_WORLD = ("env", "tasks")
_FLOATS = ("weight", "training_reward")
_RECORDED = tuple(name for name in Batch._fields if name not in _FLOATS)


class Windows:
    """All windows of `context_len` steps of the selected rows, in memory in small dtypes.

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
        plugin: RewardPlugin | None = None,
        labels: Callable[[dict[str, np.ndarray]], np.ndarray] | None = None,
    ) -> None:
        """Windows of the rows of `tasks` (indices into all tasks), with the recorded reward or that of `plugin`,
        and the recorded optimal actions or the `labels` of the columns `[N, T]`. Raises `ConfigError` if no window is
        left, or if `objective` needs optimal actions and they are unknown."""
        self.device, self.length, self.spec = device, context_len, histories.spec
        self._dtypes = dict.fromkeys((*_FLOATS, "reward"), torch.float32)
        self._dtypes |= dict.fromkeys(OBSERVATIONS, histories.spec.obs_dtype)
        self._dtypes |= dict.fromkeys(ACTIONS, histories.spec.action_dtype)
        rows, spec, folder = _selected_rows(histories, config, tasks), histories.spec, histories.folder
        num_envs, num_steps = histories.manifest["rows"]["num_envs"], histories.columns["obs"].shape[1]
        steps = config.history_len // num_envs or num_steps
        least = f"must be at least the {num_envs} environments of a learner in {folder}, a step each, or 0 for all"
        refuse(0 < config.history_len < num_envs, f"data.history_len={config.history_len}: {least}")
        columns = {name: histories.columns[name][rows, :steps] for name in _RECORDED}
        columns["reward"] = rewards = histories.rewards()[rows, :steps]
        if config.symmetries:
            _turn(columns, histories)
        if labels:
            used = slice(config.kept_steps if config.kept_steps and config.keep_every == [1] else steps)
            columns["optimal_action"] = columns["optimal_action"].copy()
            columns["optimal_action"][:, used] = labels({name: column[:, used] for name, column in columns.items()})
        without = objective.name == "dpt" and spec.is_unknown(columns["optimal_action"]).any()
        refuse(without, f"objective.name=dpt: optimal actions are unknown in {folder}")
        done = (columns["terminated"] | columns["truncated"]) > 0
        columns["training_reward"] = training_rewards(plugin, histories, rows, steps) if plugin else rewards
        columns["weight"] = step_weights(objective, spec, rewards, done).astype(np.float16)
        numbers, lengths = _kept_steps(done, config)
        usable = lengths >= context_len
        given = f"data.keep_every={config.keep_every} and data.kept_steps={config.kept_steps}"
        longest = f"the longest row of {folder}, {lengths.max(initial=0)} steps with {given}"
        refuse(not usable.any(), f"model.context_len={context_len} is longer than {longest}: lower it")
        flat = ((name, column.reshape(-1, *column.shape[2:])) for name, column in columns.items())
        self.columns = {name: torch.from_numpy(column).to(device) for name, column in flat}  # [N * T, ...]
        self._steps = torch.from_numpy(numbers).to(device)  # in the columns, row after row
        self.largest_reward = float(self.columns["training_reward"].abs().max())
        starts, num_windows = (lengths.cumsum() - lengths)[usable], lengths[usable] - context_len + 1
        self.num_windows, self.num_rows = int(num_windows.sum()), int(usable.sum())
        self._row_end = torch.from_numpy(num_windows.cumsum()).to(device)  # windows before the end of each row
        self._row_shift = torch.from_numpy(starts - (num_windows.cumsum() - num_windows)).to(device)
        self._offsets = torch.arange(context_len, device=device)

    def at(self, window: Tensor) -> Batch:
        """The windows with these numbers `[B]`, from 0 to num_windows - 1."""
        row = torch.searchsorted(self._row_end, window, right=True)
        index = self._steps[(window + self._row_shift[row])[:, None] + self._offsets]  # [B, T]
        columns = {name: column[index] for name, column in self.columns.items()}
        return Batch(**{name: part.to(self._dtypes.get(name, torch.int64)) for name, part in columns.items()})


def _turn(columns: dict[str, np.ndarray], histories: Histories) -> None:
    """Replace each row of `columns` `[N, T]` by its image under one of the eight symmetries of the room, all equally
    often. Raises `ConfigError` if the images are not lives in the same world."""
    env, spec = histories.manifest["config"]["env"], histories.spec
    same = env["name"] in ("dark_room", "dark_key_to_door") and not env.get("permute_actions") and spec.width % 2
    need = "data.symmetries=true needs a room of odd size whose actions are not permuted"
    refuse(not same, f"{need}, unlike {histories.folder}")
    cells, actions = (table.numpy() for table in symmetries(spec.width))
    actions = np.append(actions, np.full((len(actions), 1), spec.num_actions), axis=1)  # an unknown one stays unknown
    each = np.arange(len(columns["obs"]))[:, None] % len(cells)
    for name in ("obs", "next_obs"):
        layer, cell = np.divmod(columns[name], spec.width**2)
        columns[name] = (layer * spec.width**2 + cells[each, cell]).astype(columns[name].dtype)
    for name in ("action", "optimal_action"):
        columns[name] = actions[each, columns[name]].astype(columns[name].dtype)


def _selected_rows(histories: Histories, config: DataConfig, tasks: list[int]) -> np.ndarray:
    """Indices of the rows of `tasks` whose learner reached `data.min_final_success`."""
    success = np.repeat(histories.final_success(), histories.manifest["rows"]["num_envs"])  # [rows]
    of_tasks = np.isin(histories.row_tasks, tasks)
    rows = np.flatnonzero(of_tasks & (success >= config.min_final_success))
    none = f"no learner of {histories.folder} reaches data.min_final_success={config.min_final_success}"
    refuse(not len(rows), f"{none}: the best one reaches {success[of_tasks].max(initial=0):.3f}")
    return rows


def _kept_steps(done: Booleans, config: DataConfig) -> tuple[Integers, Integers]:
    """Steps of the rows that `data.keep_every` makes of rows with episode ends `done` `[N, T]`: their numbers in the
    flat `[N * T]` columns, row after row, and the length of each row `[rows]`."""
    num_rows, num_steps = done.shape
    episode = np.cumsum(done, axis=1, dtype=np.int32) - done
    first = np.arange(num_rows)[:, None] * num_steps
    numbers: list[Integers] = []
    lengths: list[Integers] = []
    for k in config.keep_every:
        phase = (episode % k).astype(np.uint16)
        order = (phase.argsort(axis=1, kind="stable") + first).ravel()  # in each row by phase, then by time
        count = np.stack([(phase == one).sum(axis=1) for one in range(k)], axis=1)  # [N, k]
        start, kept = first + count.cumsum(axis=1) - count, np.minimum(count, config.kept_steps or num_steps)
        start, kept = start.T.ravel(), kept.T.ravel()  # all rows of a phase, then those of the next
        among = np.arange(kept.sum()) + np.repeat(start - (kept.cumsum() - kept), kept)
        numbers.append(order[among].astype(np.int32 if done.size < 2**31 else np.int64))
        lengths.append(kept)
    return np.concatenate(numbers), np.concatenate(lengths)


def step_weights(config: ObjectiveConfig, spec: EnvSpec, reward: Floats, done: Booleans) -> Floats:
    """Weight of each step in the loss, given rewards and episode ends, `[N, T]` each.

    The mean weight over whole lives is 1, apart from clipping. `none`: 1. `recency`: 2 (t + 1) / (T + 1).
    `improvement`: the return-to-go over the mean return-to-go of all rows at that age,

        w_t = min((G_t - least) / (mean of G at that age - least), max_weight),    G_t = sum_k discount^k r_{t+k}

    with k up to the end of the episode. An age is a stretch of about `max_episode_steps` steps; `least` is its least
    G or 0, if that is less; all weights are 1 if all G are at the least. So the model imitates the steps after which
    an agent did better than others at its age. Early in training, these are the lucky successes."""
    num_rows, num_steps = reward.shape
    if config.weighting == "none":
        return np.ones(reward.shape, np.float32)
    if config.weighting == "recency":
        return np.tile(2 * np.arange(1, num_steps + 1, dtype=np.float32) / (num_steps + 1), (num_rows, 1))
    values, going = reward.T.copy(), ~done.T.copy()  # [T, N]
    gains, later = np.empty_like(values), np.zeros(num_rows, np.float32)
    for t in reversed(range(num_steps)):
        gains[t] = later = values[t] + config.discount * later * going[t]
    for alike in np.array_split(gains, max(1, num_steps // spec.max_episode_steps)):  # views
        least = min(alike.min(), 0)
        mean = alike.mean() - least
        alike[:] = np.minimum((alike - least) / mean, config.max_weight) if mean > 0 else 1
    return np.ascontiguousarray(gains.T)


class Mixture:
    """Windows of S stores: a store is drawn by its share, then one of its windows uniformly."""

    def __init__(self, parts: Sequence[Windows], weights: Sequence[float]) -> None:
        """`weights` are relative; if empty, every window of every store is equally likely."""
        self.parts = parts
        shares = torch.tensor(weights or [part.num_windows for part in parts], dtype=torch.float64)
        self.shares: list[float] = (shares / shares.sum()).tolist()  # [S]
        self._steps_up = cumulative(shares / shares.sum()).to(parts[0].device)
        self.num_windows = sum(part.num_windows for part in parts)
        self.largest_reward = max(part.largest_reward for part in parts)  # absolute training reward of a step

    def batch(self, seed: int, t: int, size: int, rank: int = 0, num_ranks: int = 1) -> Batch:
        """Batch `t` of the endless sequence of `seed`, `size` windows; rank r of n gets the windows r, r + n, ..."""
        lanes = torch.arange(rank, size, num_ranks, device=self._steps_up.device)
        key = mix(torch.full_like(lanes, seed), t)
        store = draw(self._steps_up, uniform(mix(key, 1), lanes))  # [B]
        each = [part.at(integers(key, lanes, part.num_windows)) for part in self.parts]
        chosen = store, torch.arange(len(lanes), device=lanes.device)
        return Batch(*(torch.stack(columns)[chosen] for columns in zip(*each, strict=True)))


def open_stores(config: Config) -> list[Histories]:
    """Open and check all stores that `config.histories` names. Raises the errors of `open_histories`, and `ConfigError`
    unless a single store was recorded with this configuration. Several stores may have different sources, but must
    share the world and the task split, so that no training task of one is held out in another."""
    stores = [open_histories(folder) for folder in config.histories_folders]
    for store in stores:
        recorded = store.manifest["config"]
        imported = (recorded.get("source") or {}).get("name") == "imported"  # its options are no one's choice
        check_same(config, recorded, _WORLD if imported or len(stores) > 1 else (*_WORLD, "source"), str(store.folder))
        if recorded["source"].get("task_change"):  # its streams went to all other training tasks
            then, now = ({name: each[name] for name in _SET_ASIDE} for each in (recorded["data"], dict(config.data)))
            refuse(then != now, f"data: {now}, but streams of {store.folder} changed among the tasks with {then}")
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
