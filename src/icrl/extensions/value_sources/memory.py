"""Training samples from replay and from recorded histories.

T steps in a window, G tasks, L learners (task by task), N environments of each, W windows per learner.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from icrl.app.root import Config
from icrl.config.options import refuse
from icrl.config.schedules import Clock
from icrl.contracts import ConfigError, Rollout, Sample, UpdateResult
from icrl.data.columns import bytes_of, row_chunks
from icrl.data.history_store import Histories, open_histories
from icrl.extensions.value_sources.options import ReplayConfig
from icrl.extensions.value_sources.replay import Drawn, Replay, indexable, restored, rollout_replay, stratified
from icrl.randomness import mix
from icrl.runs.files import PROJECT, check_same
from icrl.sources.collect import Columns, Experience, evenly_weighted, mini_batches
from icrl.sources.options import batches_of_a_sweep, clock_of, own_windows
from icrl.spaces import EnvSpec


class Memory(Experience):
    """Samples from replay, and from recorded histories of other learners."""

    def __init__(self, config: Config, spec: EnvSpec, tasks: Tensor, device: torch.device) -> None:
        super().__init__(config, spec, tasks, device)
        assert isinstance(config.source, ReplayConfig)
        self._options = source = config.source
        self._replay: Replay[Rollout] | None = None
        self._offline: OfflineWindows | None = None
        self._drawn: Drawn | None = None
        length = source.window_length(1)
        if source.replays:
            self._replay = rollout_replay(source, spec, self.num_learners, length, device)
        if source.has_offline:
            self._offline = OfflineWindows(config, source, spec, tasks, length, device)

    def samples(
        self, iteration: int, transitions: Rollout, targets: Callable[[Rollout], Columns]
    ) -> Iterator[tuple[Clock, Sample]]:
        source, now, key = self._options, clock_of(self.source, iteration - 1), mix(self._seed, iteration)
        if self._replay and len(transitions.obs):
            self._replay.add(transitions)
        num_updates = batches_of_a_sweep(source, iteration) * source.num_updates_per_train_iter
        parts: Iterable[Sample | None] = repeat(None, num_updates)
        if own_windows(source, iteration):
            parts = self._own(num_updates, transitions, targets, now, key)
        for update, own in enumerate(parts):
            clock = now._replace(updates=now.updates + update)
            yield clock, self._with_others(own, mix(mix(key, update), 1))

    def record(self, clock: Clock, result: UpdateResult) -> None:
        """Record the result of the update on the last sample."""
        if self._replay and self._drawn and result.td_error is not None:
            td_error = result.td_error.unflatten(0, (self.num_learners, -1))  # [L, W], own windows come first
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
        """Samples from the learners' own experience, `num_updates` of them from `now` on."""
        source, replay, num_sweeps = self._options, self._replay, self.source.num_updates_per_train_iter
        if replay is None:
            yield from mini_batches(source, transitions, targets(transitions), self.num_learners, key)
            return
        for sweep in range(num_sweeps):
            if source.draws:
                at = now._replace(updates=now.updates + sweep)
                self._drawn = replay.draw(source.mini_batch_size, mix(key, sweep), at)
                yield Sample(self._drawn.rollout, self._drawn.weight.flatten(), {})
            else:
                yield from (evenly_weighted(p, {}) for p in replay.sweep(num_updates // num_sweeps, mix(key, sweep)))

    def _with_others(self, own: Sample | None, key: Tensor) -> Sample:
        """Sample of `own` and `source.mini_batch_size` windows of recorded histories, one of which must be there.
        Weights make a learner's mean loss that of its own windows plus that of the histories."""
        if self._offline is None:
            return cast(Sample, own)
        others = self._offline.draw(self.source.mini_batch_size, key)
        weight = torch.ones(others.obs.shape[1], device=others.obs.device)
        if own is None:
            return Sample(others, weight, {})
        joined = Rollout(*(self._joined(*pair) for pair in zip(own.rollout, others, strict=True)))
        num_windows = joined.obs.shape[1]
        own_weight = own.weight * (num_windows / len(own.weight))
        return Sample(joined, self._joined(own_weight, weight * (num_windows / len(weight))), {})

    def _joined(self, own: Tensor, others: Tensor) -> Tensor:
        """Concatenation of `[..., L * W]` and `[..., L * V]` to `[..., L * (W + V)]`, learner by learner."""
        parts = [part.unflatten(-1, (self.num_learners, -1)) for part in (own, others)]
        return torch.cat(parts, dim=-1).flatten(-2)


class OfflineWindows:
    """Windows of T steps from the histories in `source.offline_buffer_dir`, in memory in small dtypes. Every learner
    uses all rows of its task, and all windows of a task are equally likely. A window may cross the ends of episodes."""

    def __init__(
        self, config: Config, source: ReplayConfig, spec: EnvSpec, tasks: Tensor, length: int, device: torch.device
    ) -> None:
        """Windows of `length` steps for learners of `tasks` `[G, task_dim]`. Raises `ConfigError` if the histories are
        from another world, lack a task or are too short, and the errors of `open_histories`."""
        parts = [_steps_of(config, tasks, name) for name in source.offline_buffer_dir]
        columns = zip(*(columns for columns, _, _ in parts), strict=True)
        self._spec = spec
        self._columns = [torch.cat([*of_stores]).to(device) for of_stores in columns]
        steps, task = (np.concatenate(numbers) for numbers in list(zip(*parts, strict=True))[1:])  # of each row
        starts = np.maximum(steps - length + 1, 0)  # windows of each row
        per_task = np.bincount(task, starts, len(tasks)).astype(np.int64)
        named = f"source.offline_buffer_dir={','.join(source.offline_buffer_dir)}"
        too_long = f"source.mini_batch_length={length} is longer than the histories of a task: {named}"
        refuse(not per_task.all(), too_long)
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


def _steps_of(config: Config, tasks: Tensor, name: str) -> tuple[list[Tensor], np.ndarray, np.ndarray]:
    """Columns of the histories `name`, row after row, and for each row its length and the place of its task among
    `tasks`."""
    histories = open_histories(PROJECT / config.root / "histories" / name)
    where = f"source.offline_buffer_dir={name}: {histories.folder}"
    recorded = histories.manifest["config"]
    check_same(config, recorded, ("env",), where)
    moved = f"{where} has streams that changed their tasks: name histories with source.task_change=0"
    refuse(recorded["source"].get("task_change"), moved)
    rows = _rows_of(histories, tasks, where)  # [G * R]
    used: dict[str, list[Tensor]] = {name: [] for name in Rollout._fields}
    row_len = histories.columns["reward"].shape[1]
    size = bytes_of(histories.columns.values(), row_len)
    for chunk in row_chunks(len(rows), 2 * size):  # as recorded, and those that are kept
        columns = {name: column[rows[chunk]] for name, column in histories.columns.items()}
        columns["reward"] = histories.rewards(rows[chunk])
        for column, steps in used.items():
            flat = np.array(columns[column]).reshape(-1, *columns[column].shape[2:])
            steps.append(torch.from_numpy(flat).to(indexable(str(flat.dtype))))
    task = np.repeat(np.arange(len(tasks)), len(rows) // len(tasks))
    return [torch.cat(steps) for steps in used.values()], np.full(len(rows), row_len), task


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
