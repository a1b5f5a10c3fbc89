"""Columns of the rows that a model learns from, as recorded or changed by options, and the weights of their steps.

N rows, T steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from icrl.config.options import refuse
from icrl.contracts import Batch
from icrl.data.columns import Booleans, Floats, bytes_of, row_chunks
from icrl.data.episodes import Stretches, stretches
from icrl.data.history_store import Histories
from icrl.data.mapped import MappedSteps, scratch
from icrl.data.weights import Ages, ages_of, all_ages, step_weights

if TYPE_CHECKING:
    from icrl.data.windows import DataConfig
    from icrl.objectives.imitation import ObjectiveConfig

FLOATS = ("weight", "training_reward")
RECORDED = tuple(name for name in Batch._fields if name not in FLOATS)
ENDS = ("terminated", "truncated")
Columns = dict[str, Any]
Rewards = Callable[[Histories, np.ndarray, int], Floats]  # to train on: of rows, `[rows, steps]` from their start on
Labels = Callable[..., np.ndarray]  # of columns `[N, T]`; `first_row`: the number of the first one among all


class RowColumns(NamedTuple):
    """The first `num_steps` steps of the `rows` of histories, and what options make of them."""

    histories: Histories
    config: DataConfig
    objective: ObjectiveConfig
    rows: np.ndarray
    num_steps: int
    rewards: Rewards | None
    labels: Labels | None

    def in_memory(self) -> tuple[Columns, list[list[Stretches]]]:
        """All columns of all rows, `[N, T, ...]`, and the stretches that are kept."""
        columns, done = self._columns(slice(0, len(self.rows)), RECORDED)
        return columns, [self._stretches(done)]

    def on_disk(self) -> tuple[MappedSteps, list[list[Stretches]]]:
        """The same with recorded columns as they are on disk, and further files for those that options change. The
        weight is missing if all are 1, the training reward if it is the recorded one."""
        changed = {"optimal_action"} if self.labels else set[str]()
        changed |= {"weight"} if self.objective.weighting != "none" else set()
        changed |= {"training_reward"} if self.rewards else set()
        read = {*ENDS, *(changed & {*RECORDED})} | ({*RECORDED} if self.labels else set())
        read |= {"reward"} if "weight" in changed else set()
        read |= {"optimal_action"} if self.objective.name == "dpt" else set()
        recorded = {name: self.histories.columns[name] for name in RECORDED}
        if not changed and self.config.keep_every == [1] and self.objective.name != "dpt":  # nothing has to be read
            no_end = np.broadcast_to(np.False_, (len(self.rows), self.num_steps))
            return MappedSteps(recorded, {}, self.rows, self.num_steps), [self._stretches(no_end)]
        size = bytes_of(self.histories.columns.values(), self.num_steps)
        chunks, ages = [*row_chunks(len(self.rows), 8 * size)], None  # as much again for each thing that is computed
        if self.objective.weighting == "improvement":
            ages = all_ages([self._ages(chunk) for chunk in chunks])
        forms = {name: (column.dtype, column.shape[2:]) for name, column in self.histories.columns.items()}
        forms |= {"weight": (np.float16, ()), "training_reward": (np.float32, ())}
        shape, folder = (len(self.rows), self.num_steps), self.histories.folder
        made = {name: scratch(folder, (*shape, *forms[name][1]), forms[name][0]) for name in sorted(changed)}
        kept: list[list[Stretches]] = []
        for chunk in chunks:
            columns, done = self._columns(chunk, sorted(read), ages)
            kept.append(self._stretches(done, chunk.start))
            for name, array in made.items():
                array[chunk] = columns[name]
        return MappedSteps(recorded, made, self.rows, self.num_steps), kept

    def _columns(self, chunk: slice, names: Any, ages: Ages | None = None) -> tuple[Columns, Booleans]:
        """Columns with these `names` of a part of the rows, those that are computed, and the ends of episodes."""
        histories, rows, steps = self.histories, self.rows[chunk], self.num_steps
        spec = histories.spec
        columns: Columns = {name: histories.columns[name][rows, :steps] for name in names}
        if "reward" in columns:
            columns["reward"] = histories.rewards(rows, slice(steps))
        if self.labels:
            used = slice(self.config.kept_steps if self.config.kept_steps and self.config.keep_every == [1] else steps)
            columns["optimal_action"] = columns["optimal_action"].copy()
            seen = {name: column[:, used] for name, column in columns.items()}
            columns["optimal_action"][:, used] = self.labels(seen, first_row=chunk.start)
        without = self.objective.name == "dpt" and spec.is_unknown(columns["optimal_action"]).any()
        refuse(without, f"objective.name=dpt: optimal actions are unknown in {histories.folder}")
        done = (columns["terminated"] | columns["truncated"]) > 0
        if self.rewards:
            columns["training_reward"] = self.rewards(histories, rows, steps)
        elif "reward" in columns:
            columns["training_reward"] = columns["reward"]
        if "reward" in columns:
            how = self.objective.weighting, self.objective.discount
            columns["weight"] = step_weights(*how, spec, columns["reward"], done, ages).astype(np.float16)
        return columns, done

    def _ages(self, chunk: slice) -> Ages:
        rows, steps = self.rows[chunk], slice(self.num_steps)
        terminated, truncated = (self.histories.columns[name][rows, steps] for name in ENDS)
        reward = self.histories.rewards(rows, steps)
        return ages_of(self.objective.discount, self.histories.spec, reward, (terminated | truncated) > 0)

    def _stretches(self, done: Booleans, first_row: int = 0) -> list[Stretches]:
        return [stretches(done, k, self.config.kept_steps, first_row) for k in self.config.keep_every]
