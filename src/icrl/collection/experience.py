"""Training samples for source agents: from the newest unroll, replay or recorded histories.

T steps in a window, G tasks, L learners (task by task), N environments of each, W windows per learner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice, repeat
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor

from icrl.collection.replay import Drawn, Replay, indexable, restored, rollout_replay, shuffled, stratified
from icrl.config.options import refuse, replace
from icrl.config.paths import PROJECT
from icrl.config.schedules import Clock, make_schedule
from icrl.contracts import ConfigError, Learned, Rollout, Sample
from icrl.data.columns import bytes_of, row_chunks
from icrl.data.history_store import Histories, open_histories
from icrl.randomness import mix
from icrl.runs.files import check_same
from icrl.sources.options import ReplayConfig, SourceConfig
from icrl.sources.pace import batches_of_a_sweep, clock_of, own_windows, window_length
from icrl.spaces import EnvSpec

if TYPE_CHECKING:
    from icrl.config.root import Config

Columns = dict[str, Tensor]


class Experience:
    """Training samples of each iteration, with windows that are a function of (seed, iteration, update)."""

    def __init__(self, config: Config, spec: EnvSpec, tasks: Tensor, device: torch.device) -> None:
        """Samples for `source.num_learners` learners on each of `tasks` `[G, task_dim]`."""
        self.source = source = config.source
        self._seed = torch.tensor(config.seed, device=device)
        self._num_learners = source.learners_for(len(tasks))
        self._replay: Replay[Rollout] | None = None
        self._offline: OfflineWindows | None = None
        self._drawn: Drawn | None = None
        if isinstance(source, ReplayConfig):
            length = window_length(source, 1)
            self._offline_weight = make_schedule(source.offline_loss_weight)
            if source.replays:
                self._replay = rollout_replay(source, spec, self._num_learners, length, device)
            if source.has_offline:
                self._offline = OfflineWindows(config, source, spec, tasks, length, device)

    def samples(
        self, iteration: int, transitions: Rollout, targets: Callable[[Rollout], Columns]
    ) -> Iterator[tuple[Clock, Sample]]:
        """Samples of `iteration` (from 1) with the new `transitions` `[T, L * N]`: one per update, each with its clock.
        Call `learned` after each update. `targets` is called once, if the whole unroll is used."""
        source, now, key = self.source, clock_of(self.source, iteration - 1), mix(self._seed, iteration)
        if self._replay and len(transitions.obs):
            self._replay.add(transitions)
        num_updates = batches_of_a_sweep(source, iteration) * source.num_updates_per_train_iter
        parts: Iterable[Sample | None] = repeat(None, num_updates)
        if own_windows(source, iteration):
            parts = self._own(num_updates, transitions, targets, now, key)
        for update, own in enumerate(parts):
            clock = now._replace(updates=now.updates + update)
            offline = self._offline
            sample = self._with_offline(offline, own, mix(mix(key, update), 1), clock) if offline else own
            yield clock, cast(Sample, sample)  # every update has one of the two

    def learned(self, clock: Clock, learned: Learned) -> None:
        """Record the result of the update on the last sample."""
        if self._replay and self._drawn and learned.td_error is not None:
            td_error = learned.td_error.unflatten(0, (self._num_learners, -1))  # [L, W], own windows come first
            self._replay.set_priorities(self._drawn.where, td_error[:, : self._drawn.where.shape[1]], clock)
            self._drawn = None

    def state_dict(self) -> dict[str, Any]:
        return {"replay": self._replay.state_dict()} if self._replay else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if self._replay:
            self._replay.load_state_dict(state["replay"])

    def _own(
        self, num_updates: int, transitions: Rollout, targets: Callable[[Rollout], Columns], now: Clock, key: Tensor
    ) -> Iterator[Sample]:
        """Samples from the learners' own experience."""
        source, replay, num_sweeps = self.source, self._replay, self.source.num_updates_per_train_iter
        if replay is None:
            yield from mini_batches(source, transitions, targets(transitions), self._num_learners, key)
            return
        for sweep in range(num_sweeps):
            if source.draws:
                at = now._replace(updates=now.updates + sweep)
                self._drawn = replay.draw(source.mini_batch_size, mix(key, sweep), at)
                yield Sample(self._drawn.rollout, self._drawn.weight.flatten(), {})
            else:
                yield from (evenly_weighted(p, {}) for p in replay.sweep(num_updates // num_sweeps, mix(key, sweep)))

    def _with_offline(self, offline: OfflineWindows, own: Sample | None, key: Tensor, clock: Clock) -> Sample:
        """Sample of `own` and `source.mini_batch_size` windows of recorded histories. Weights make a learner's mean
        loss that of its own windows plus `source.offline_loss_weight` times that of the histories."""
        others = offline.draw(self.source.mini_batch_size, key)
        weight = torch.full((others.obs.shape[1],), self._offline_weight(clock), device=others.obs.device)
        if own is None:
            return Sample(others, weight, {})
        joined = Rollout(*(self._joined(*pair) for pair in zip(own.rollout, others, strict=True)))
        num_windows = joined.obs.shape[1]
        own_weight = own.weight * (num_windows / len(own.weight))
        return Sample(joined, self._joined(own_weight, weight * (num_windows / len(weight))), {})

    def _joined(self, own: Tensor, others: Tensor) -> Tensor:
        """Concatenation of `[..., L * W]` and `[..., L * V]` to `[..., L * (W + V)]`, learner by learner."""
        parts = [part.unflatten(-1, (self._num_learners, -1)) for part in (own, others)]
        return torch.cat(parts, dim=-1).flatten(-2)


def without_others(config: Config) -> Config:
    """Configuration for tasks without recorded histories or a teacher: learners use only their own experience, and the
    planner is the expert."""
    alone: dict[str, Any] = {"teacher": "none", "offline_buffer_dir": []}
    alone |= {"rl_train_after_update_steps": 0, "rl_train_every_update_steps": 1}
    changes = {name: value for name, value in alone.items() if hasattr(config.source, name)}
    return replace(config, source=replace(config.source, **changes)) if changes else config


def mini_batches(
    source: SourceConfig, transitions: Rollout, targets: Columns, num_learners: int, key: Tensor
) -> Iterator[Sample]:
    """Mini-batches of an unroll `[T, L * N]` and its `targets`, one per update, in an order given by `key` (one int64).

    Each of `source.num_updates_per_train_iter` sweeps cuts it into windows of `source.mini_batch_length` steps. It
    draws them without replacement, `source.mini_batch_size` for each learner, and for each task if it is shared. All
    learners draw the same window numbers, so learner k does not depend on the others."""
    for sweep in range(source.num_updates_per_train_iter):
        if not source.mini_batch_length and not source.mini_batch_size:
            yield evenly_weighted(transitions, targets)
            continue
        length = source.mini_batch_length or len(transitions.obs)
        cut = (column.unflatten(0, (-1, length)) for column in (*transitions, *targets.values()))
        # [T / length, length, L * N] -> [length, L, W] with the W = T / length * N windows of each learner
        windows = [column.unflatten(2, (num_learners, -1)).movedim(0, 2).flatten(2, 3) for column in cut]
        num_windows = windows[0].shape[2]
        each = num_windows * source.mini_batch_size // (len(transitions.obs) // length * source.num_envs) or num_windows
        for chosen in shuffled(num_windows, mix(key, sweep)).split(each):
            columns = iter([column[:, :, chosen].flatten(1, 2) for column in windows])
            yield evenly_weighted(Rollout(*islice(columns, len(transitions))), dict(zip(targets, columns, strict=True)))


def evenly_weighted(rollout: Rollout, targets: Columns) -> Sample:
    """Sample of `[T, L * W]` transitions whose windows have weight 1."""
    return Sample(rollout, torch.ones(rollout.obs.shape[1], device=rollout.obs.device), targets)


class OfflineWindows:
    """Windows of T steps from the histories in `source.offline_buffer_dir`, in memory in small dtypes. Every learner
    uses all rows of its task, and all windows of a task are equally likely.

    Each row contributes its first or last `offline_buffer_length` steps, and of these every `offline_buffer_every`-th
    episode, concatenated. A window may cross the ends of episodes."""

    def __init__(
        self, config: Config, source: ReplayConfig, spec: EnvSpec, tasks: Tensor, length: int, device: torch.device
    ) -> None:
        """Windows of `length` steps for learners of `tasks` `[G, task_dim]`. Raises `ConfigError` if the histories are
        from another world, lack a task or are too short, and the errors of `open_histories`."""
        parts = [_used_steps(config, source, tasks, name) for name in source.offline_buffer_dir]
        columns = zip(*(columns for columns, _, _ in parts), strict=True)
        self._spec = spec
        self._columns = [torch.cat([*of_stores]).to(device) for of_stores in columns]
        steps, task = (np.concatenate(numbers) for numbers in list(zip(*parts, strict=True))[1:])  # of each row
        starts = np.maximum(steps - length + 1, 0)  # windows of each row
        per_task = np.bincount(task, starts, len(tasks)).astype(np.int64)
        named = f"source.offline_buffer_dir={','.join(source.offline_buffer_dir)}"
        refuse(
            not per_task.all(),
            f"source.mini_batch_length={length} is longer than the histories of a task: {named}, "
            f"source.offline_buffer_length={source.offline_buffer_length}, "
            f"source.offline_buffer_every={source.offline_buffer_every}",
        )
        order = task.argsort(kind="stable")  # rows task by task, whatever store they are in
        first_step, ends = (steps.cumsum() - steps)[order], starts[order].cumsum()
        self._num_windows, self._first = (
            torch.from_numpy(np.repeat(numbers, source.num_learners)).to(device)
            for numbers in (per_task, per_task.cumsum() - per_task)
        )  # [L]
        self._row_end = torch.from_numpy(ends).to(device)
        self._row_shift = torch.from_numpy(first_step - (ends - starts[order])).to(device)
        self._offset = torch.arange(length, device=device)[:, None, None]

    def draw(self, num_windows: int, key: Tensor) -> Rollout:
        """Draw `num_windows` for each learner, uniformly from those of its task, `[T, L * W]`. All learners use the
        same random numbers, a function of `key` (one int64)."""
        within = (stratified(num_windows, key) * self._num_windows[:, None]).long()
        number = self._first[:, None] + within  # [L, W]
        start = number + self._row_shift[torch.searchsorted(self._row_end, number, right=True)]
        index = (start + self._offset).flatten(1)
        return restored(self._spec, Rollout(*(column[index] for column in self._columns)))


def _used_steps(
    config: Config, source: ReplayConfig, tasks: Tensor, name: str
) -> tuple[list[Tensor], np.ndarray, np.ndarray]:
    """Columns of the steps that are used of the histories `name`, row after row, and for each row their number and the
    place of its task among `tasks`."""
    histories = open_histories(PROJECT / config.root / "histories" / name)
    where = f"source.offline_buffer_dir={name}: {histories.folder}"
    check_same(config, histories.manifest["config"], ("env",), where)
    rows = _rows_of(histories, tasks, where)  # [G * R]
    used: dict[str, list[Tensor]] = {name: [] for name in Rollout._fields}
    lengths: list[np.ndarray] = []
    size = bytes_of(histories.columns.values(), histories.columns["reward"].shape[1])
    for chunk in row_chunks(len(rows), 2 * size):  # as recorded, and those that are kept
        kept = _kept_steps(histories, rows[chunk], source, where)  # [rows, steps]
        lengths.append(kept.sum(axis=1))
        columns = {name: column[rows[chunk]] for name, column in histories.columns.items()}
        columns["reward"] = histories.rewards(rows[chunk])
        for column, steps in used.items():
            steps.append(torch.from_numpy(columns[column][kept]).to(indexable(str(columns[column].dtype))))
    task = np.repeat(np.arange(len(tasks)), len(rows) // len(tasks))
    return [torch.cat(steps) for steps in used.values()], np.concatenate(lengths), task


def _rows_of(histories: Histories, tasks: Tensor, where: str) -> np.ndarray:
    """Rows of each of `tasks` `[G, task_dim]`, task by task."""
    table, rows = histories.manifest["tasks"], histories.manifest["rows"]
    place = {tuple(table["all"][number]): place for place, number in enumerate(table["train"])}
    missing = [task for task in tasks.tolist() if tuple(task) not in place]
    if missing:
        raise ConfigError(
            f"{where} has no histories of {len(missing)} of the {len(tasks)} training tasks, such as {missing[0]}: "
            "give tasks.split, tasks.num_train and tasks.seed as in that run"
        )
    per_task = rows["num_learners"] * rows["num_envs"]
    first = np.array([place[tuple(task)] for task in tasks.tolist()]) * per_task
    return (first[:, None] + np.arange(per_task)).flatten()


def _kept_steps(histories: Histories, rows: np.ndarray, source: ReplayConfig, where: str) -> np.ndarray:
    """Mask of the steps of the `rows` to use, `[rows, steps]` bool."""
    done = (histories.columns["terminated"][rows] | histories.columns["truncated"][rows]) > 0
    row_len = done.shape[1]
    length = source.offline_buffer_length or row_len
    given = f"source.offline_buffer_length={length}"
    refuse(length > row_len, f"{given} is more than the {row_len} steps of a row: {where}. Lower it, or give 0 for all")
    step = np.arange(row_len)
    within = step < length if source.offline_buffer_range == "first" else step >= row_len - length
    episode = np.cumsum(done, axis=1) - done
    return within & ((episode - episode[:, [within.argmax()]]) % source.offline_buffer_every == 0)
