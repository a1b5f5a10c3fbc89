"""Lives that a model learns from: the steps that are kept, their weights in the loss, and columns as recorded or as
options change them.

N rows, T steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from icrl.config.options import refuse
from icrl.contracts import Batch
from icrl.data.columns import Booleans, Floats, Integers, MappedSteps, bytes_of, row_chunks, scratch
from icrl.data.history_store import Histories
from icrl.spaces import EnvSpec

if TYPE_CHECKING:
    from icrl.data.windows import DataConfig
    from icrl.objectives.imitation import ObjectiveConfig

FLOATS = ("weight", "training_reward")
RECORDED = tuple(name for name in Batch._fields if name not in FLOATS)
ENDS = ("terminated", "truncated")
Columns = dict[str, Any]
Rewards = Callable[[Histories, np.ndarray, int], Floats]  # to train on: of rows, `[rows, steps]` from their start on
Labels = Callable[..., np.ndarray]  # of columns `[N, T]`; `first_row`: the number of the first one among all
MOST = 20.0  # largest weight of a step
Ages = list[tuple[np.float32, np.float32, int]]  # least and mean return-to-go at each age, and the number of steps
_AT_ONCE = 2**30  # bytes of rows whose returns are compared at once


class RowColumns(NamedTuple):
    """The first `num_steps` steps of the `rows` of histories, and what options make of them."""

    histories: Histories
    config: DataConfig
    objective: ObjectiveConfig
    rows: np.ndarray
    num_steps: int
    rewards: Rewards | None
    labels: Labels | None

    def steps(self) -> tuple[MappedSteps, list[list[Stretches]]]:
        """Columns of all steps, and for one chunk of rows after another the stretches that are kept, one `Stretches`
        for each k. Columns are as on disk, with further files for those that options change. The weight is missing if
        all are 1, the training reward if it is the recorded one."""
        weighted, needs_labels = self.objective.weighting != "none", self.objective.name == "dpt"
        is_changed = {"optimal_action": self.labels, "training_reward": self.rewards, "weight": weighted}
        changed = [name for name, change in is_changed.items() if change]
        recorded = {name: self.histories.columns[name] for name in RECORDED}
        if not changed and self.config.keep_every == [1] and not needs_labels:  # nothing has to be read
            no_end = np.broadcast_to(np.False_, (len(self.rows), self.num_steps))
            return MappedSteps(recorded, {}, self.rows, self.num_steps), [self._stretches(no_end)]
        size = bytes_of(self.histories.columns.values(), self.num_steps)
        chunks, ages = [*row_chunks(len(self.rows), 8 * size)], None  # as much again for each thing that is computed
        if self.objective.weighting == "improvement":
            at_once = row_chunks(len(self.rows), 16 * self.num_steps, most=_AT_ONCE)
            ages = all_ages([self._ages(chunk) for chunk in at_once])
        forms = {name: (column.dtype, column.shape[2:]) for name, column in self.histories.columns.items()}
        # Weights of at most 20 need no more digits, and are often the largest of the columns that are computed.
        forms |= {"weight": (np.float16, ()), "training_reward": (np.float32, ())}
        shape, folder = (len(self.rows), self.num_steps), self.histories.folder
        made = {name: scratch(folder, (*shape, *forms[name][1]), forms[name][0]) for name in changed}
        read = {*ENDS} | ({"reward"} if weighted else set()) | ({"optimal_action"} if needs_labels else set())
        kept: list[list[Stretches]] = []
        for chunk in chunks:
            columns, done = self._columns(chunk, RECORDED if self.labels else read, ages)
            kept.append(self._stretches(done, chunk.start))
            for name, array in made.items():
                array[chunk] = columns[name]
        return MappedSteps(recorded, made, self.rows, self.num_steps), kept

    def _columns(self, chunk: slice, names: Iterable[str], ages: Ages | None) -> tuple[Columns, Booleans]:
        """Columns with these `names` of a part of the rows, those that are computed, and the ends of episodes."""
        histories, rows, steps = self.histories, self.rows[chunk], self.num_steps
        spec = histories.spec
        columns: Columns = {name: histories.columns[name][rows, :steps] for name in names}
        if "reward" in columns:
            columns["reward"] = histories.rewards(rows, slice(steps))
        used = slice(self.config.kept_steps if self.config.kept_steps and self.config.keep_every == [1] else steps)
        if self.labels:
            columns["optimal_action"] = columns["optimal_action"].copy()
            seen = {name: column[:, used] for name, column in columns.items()}
            columns["optimal_action"][:, used] = self.labels(seen, first_row=chunk.start)
        without = self.objective.name == "dpt" and spec.is_unknown(columns["optimal_action"][:, used]).any()
        refuse(without, f"objective.name=dpt: optimal actions are unknown in {histories.folder}")
        done = (columns["terminated"] | columns["truncated"]) > 0
        if self.rewards:
            columns["training_reward"] = self.rewards(histories, rows, steps)
        if self.objective.weighting != "none":
            how = self.objective.weighting, self.objective.discount
            columns["weight"] = step_weights(*how, spec, columns["reward"], done, ages).astype(np.float16)
        return columns, done

    def _ages(self, chunk: slice) -> Ages:
        """Least and mean return-to-go of a part of the rows at each age."""
        rows, steps = self.rows[chunk], slice(self.num_steps)
        terminated, truncated = (self.histories.columns[name][rows, steps] for name in ENDS)
        reward = self.histories.rewards(rows, steps)
        gains = _returns_to_go(self.objective.discount, reward, (terminated | truncated) > 0)
        return _ages_of(gains, self.histories.spec)

    def _stretches(self, done: Booleans, first_row: int = 0) -> list[Stretches]:
        return [stretches(done, k, self.config.kept_steps, first_row) for k in self.config.keep_every]


class Stretches(NamedTuple):
    """Stretches of consecutive steps of rows, row by row; in a row by phase, then by time."""

    phase: Integers
    row: Integers
    start: Integers  # step of the row
    length: Integers


def stretches(done: Booleans, k: int, kept_steps: int, first_row: int = 0) -> Stretches:
    """The first `kept_steps` steps (0: all) of episodes 0, k, 2k, ..., of 1, k + 1, ... and so on for each phase, in
    rows from `first_row` on whose episodes end at `done` `[N, T]`."""
    num_rows, num_steps = done.shape
    most = kept_steps or num_steps
    if k == 1:
        row = np.arange(first_row, first_row + num_rows)
        return Stretches(np.zeros_like(row), row, np.zeros_like(row), np.full_like(row, min(most, num_steps)))
    begins = np.ones_like(done)
    begins[:, 1:] = done[:, :-1]
    row, start = begins.nonzero()
    length = np.diff(row * num_steps + start, append=done.size)
    phase = (np.arange(len(row)) - np.searchsorted(row, row)) % k  # of the number of the episode in its row
    order = (row * k + phase).argsort(kind="stable")
    phase, row, start, length = phase[order], row[order], start[order], length[order]
    group = row * k + phase
    earlier = length.cumsum() - length
    earlier = earlier - earlier[np.searchsorted(group, group)]  # steps of the same row and phase before
    length = np.minimum(length, most - earlier)
    kept = length > 0
    return Stretches(phase[kept], first_row + row[kept], start[kept], length[kept])


class KeptSteps(NamedTuple):
    """Index of the kept steps. Its rows are those of the histories, once for each phase of each k; the places of all
    their steps are numbered row by row.

    Example: one row with episodes of 3, 2 and 4 steps, and k = 2. Phase 0 has steps 0-2 and 5-8 at places 0-6, phase 1
    has steps 3-4 at places 7-8. So row_length = [7, 2], end = [3, 7, 9], shift = [0, 2, -4]."""

    row_length: Tensor  # kept steps of each row
    end: Tensor  # of each stretch: the place after its last step
    shift: Tensor  # of each stretch: number of a step, row * num_steps + time, less its place

    @classmethod
    def of(cls, parts: list[list[Stretches]], keep_every: Sequence[int], num_rows: int, num_steps: int) -> KeptSteps:
        """Index by k, phase and row. Each of `parts` has the stretches of some rows for each k, in order of rows."""
        row_lengths, lengths, firsts = list[Integers](), list[Integers](), list[Integers]()
        for k, of_k in zip(keep_every, zip(*parts, strict=True), strict=True):
            phase, row, start, length = (np.concatenate(part) for part in zip(*of_k, strict=True))
            order = phase.argsort(kind="stable")
            row_lengths.append(np.bincount(phase * num_rows + row, length, k * num_rows).astype(np.int64))
            lengths.append(length[order])
            firsts.append((row * num_steps + start)[order])
        end = (length := np.concatenate(lengths)).cumsum()
        shift = np.concatenate(firsts) - (end - length)
        return cls(*map(torch.from_numpy, (np.concatenate(row_lengths), end, shift)))

    def steps(self, place: Tensor) -> Tensor:
        """Numbers of the steps at these places."""
        return place + self.shift[torch.searchsorted(self.end, place, right=True)]


def step_weights(
    weighting: str, discount: float, spec: EnvSpec, reward: Floats, done: Booleans, ages: Ages | None = None
) -> Floats:
    """Weight of each step in the loss by `objective.weighting`, given rewards and episode ends, `[N, T]` each.

    The mean weight over whole lives is 1, apart from clipping. `none`: 1. `recency`: 2 (t + 1) / (T + 1).
    `improvement`: the return-to-go over the mean return-to-go of all rows at that age,

        w_t = min((G_t - least) / (mean of G at that age - least), 20),    G_t = sum_k discount^k r_{t+k}

    with k up to the end of the episode. An age is a stretch of about `max_episode_steps` steps; `least` is its least
    G or 0, if that is less; all weights are 1 if all G are at the least. So the model imitates the steps after which
    an agent did better than others at its age. Early in training, these are the lucky successes.

    `ages` are those of all rows, if these are a part of them."""
    num_rows, num_steps = reward.shape
    if weighting == "none":
        return np.ones(reward.shape, np.float32)
    if weighting == "recency":
        return np.tile(2 * np.arange(1, num_steps + 1, dtype=np.float32) / (num_steps + 1), (num_rows, 1))
    gains = _returns_to_go(discount, reward, done)
    for alike, (lowest, middle, _) in zip(_by_age(gains, spec), ages or _ages_of(gains, spec), strict=True):
        least = min(lowest, 0)
        mean = middle - least
        alike[:] = np.minimum((alike - least) / mean, MOST) if mean > 0 else 1
    return np.ascontiguousarray(gains.T)


def _ages_of(gains: Floats, spec: EnvSpec) -> Ages:
    return [(each.min(), each.mean(), each.size) for each in _by_age(gains, spec)]


def all_ages(parts: Sequence[Ages]) -> Ages:
    """Those of all rows, from those of each part of them."""
    return [
        (
            min(least for least, _, _ in age),
            np.float32(np.average([mean for _, mean, _ in age], weights=[number for *_, number in age])),
            sum(number for *_, number in age),
        )
        for age in zip(*parts, strict=True)
    ]


def _returns_to_go(discount: float, reward: Floats, done: Booleans) -> Floats:
    """Return-to-go of each step, `[T, N]`."""
    values, going = reward.T.copy(), ~done.T.copy()
    gains, later = np.empty_like(values), np.zeros(len(reward), np.float32)
    for t in reversed(range(reward.shape[1])):
        gains[t] = later = values[t] + discount * later * going[t]
    return gains


def _by_age(gains: Floats, spec: EnvSpec) -> list[Floats]:
    """Views of the steps of each age."""
    return np.array_split(gains, max(1, len(gains) // spec.max_episode_steps))
