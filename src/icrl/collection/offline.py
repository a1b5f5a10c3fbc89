"""Recorded histories of the same tasks as training data, before or beside the learners' own experience.

T steps in a window, G tasks, L = G * K learners (task by task), W windows per learner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from icrl.collection.replay import indexable, restored, stratified
from icrl.contracts import ConfigError, Rollout
from icrl.data.history_store import Histories, open_histories
from icrl.runs.files import check_same
from icrl.sources.options import ReplayConfig

if TYPE_CHECKING:
    from icrl.config.root import Config


class OfflineWindows:
    """Windows of T steps from the histories `source.offline_buffer_dir`, in memory in small dtypes. Every learner uses
    all rows of its task.

    Each row contributes its first or last `offline_buffer_length` steps, and of these every `offline_buffer_every`-th
    episode, concatenated. A window may cross the ends of episodes."""

    def __init__(self, config: Config, source: ReplayConfig, tasks: Tensor, length: int, device: torch.device) -> None:
        """Windows of `length` steps for learners of `tasks` `[G, task_dim]`. Raises `ConfigError` if the histories are
        from another world, lack a task or are too short, and the errors of `open_histories`."""
        self._num_learners = source.num_learners
        histories = open_histories(config.folder("histories").parent / source.offline_buffer_dir)
        where = f"source.offline_buffer_dir={source.offline_buffer_dir}: {histories.folder}"
        check_same(config, histories.manifest["config"], ("env",), where)
        rows = _rows_of(histories, tasks, where)  # [G * R]
        kept = _kept_steps(histories, rows, source, where)  # [G * R, steps]
        columns = (histories.columns[name] for name in Rollout._fields)
        self._columns = [
            torch.from_numpy(column[rows][kept]).to(device, indexable(str(column.dtype))) for column in columns
        ]
        steps = kept.sum(axis=1)
        starts = np.maximum(steps - length + 1, 0)  # [G * R]: windows of each row
        per_task = starts.reshape(len(tasks), -1).sum(axis=1)
        if not per_task.all():
            raise ConfigError(
                f"source.mini_batch_length={length} is longer than the histories of a task as used here: {where}, "
                f"source.offline_buffer_length={source.offline_buffer_length}, "
                f"source.offline_buffer_every={source.offline_buffer_every}. Lower it, or use more of them"
            )
        ends = starts.cumsum()
        self._num_windows, self._first = (
            torch.from_numpy(np.repeat(numbers, source.num_learners)).to(device)
            for numbers in (per_task, per_task.cumsum() - per_task)
        )  # [L]
        self._row_end = torch.from_numpy(ends).to(device)
        self._row_shift = torch.from_numpy((steps.cumsum() - steps) - (ends - starts)).to(device)
        self._offset = torch.arange(length, device=device)[:, None, None]

    def draw(self, num_windows: int, key: Tensor) -> Rollout:
        """Draw `num_windows` for each learner, uniformly from those of its task, `[T, L * W]`. All learners use the
        same random numbers, a function of `key` (one int64)."""
        within = (stratified(num_windows, key) * self._num_windows[:, None]).long()
        number = self._first[:, None] + within  # [L, W]
        start = number + self._row_shift[torch.searchsorted(self._row_end, number, right=True)]
        index = (start + self._offset).flatten(1)
        return restored(Rollout(*(column[index] for column in self._columns)))


def _rows_of(histories: Histories, tasks: Tensor, where: str) -> np.ndarray:
    """Rows of each of `tasks` `[G, task_dim]`, task by task."""
    table = histories.manifest["tasks"]
    place = {tuple(table["all"][number]): place for place, number in enumerate(table["train"])}
    missing = [task for task in tasks.tolist() if tuple(task) not in place]
    if missing:
        raise ConfigError(
            f"{where} has no histories of {len(missing)} of the {len(tasks)} training tasks, such as "
            f"{missing[0]}: give tasks.split, tasks.num_train and tasks.seed as in that run"
        )
    per_task = histories.manifest["rows"]["num_learners"] * histories.manifest["rows"]["num_envs"]
    first = np.array([place[tuple(task)] for task in tasks.tolist()]) * per_task
    return (first[:, None] + np.arange(per_task)).flatten()


def _kept_steps(histories: Histories, rows: np.ndarray, source: ReplayConfig, where: str) -> np.ndarray:
    """Mask of the steps of the `rows` to use, `[rows, steps]` bool."""
    done = (histories.columns["terminated"][rows] | histories.columns["truncated"][rows]) > 0
    row_len = done.shape[1]
    length = source.offline_buffer_length or row_len
    if length > row_len:
        raise ConfigError(
            f"source.offline_buffer_length={length} is more than the {row_len} steps of a row: {where}. Lower it, or "
            "give 0 for all"
        )
    step = np.arange(row_len)
    within = step < length if source.offline_buffer_range == "first" else step >= row_len - length
    first = within.argmax()
    episode = np.cumsum(done, axis=1) - done
    return within & ((episode - episode[:, first : first + 1]) % source.offline_buffer_every == 0)
