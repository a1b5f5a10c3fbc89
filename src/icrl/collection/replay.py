"""Experience replay: a buffer of the newest steps of every stream, from which training windows are drawn.

T steps in a window, L learners, N environments of each, B = L * N streams (learner by learner), a capacity of C steps
per stream, W windows per learner. The columns are any named tuple of tensors `[C, B, ...]`: a `Rollout`, or the
transitions of the point game with one learner, one stream and windows of one step.
"""

from collections.abc import Callable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from icrl.collection.replay import Priorities, Replay
from icrl.config.schedules import Clock
from icrl.contracts import EnvSpec, Rollout
from icrl.data.history_store import column_dtypes
from icrl.randomness import integers, uniform
from icrl.sources.options import ReplayConfig

Columns = TypeVar("Columns", bound=Any)  # a named tuple of tensors


class Drawn(NamedTuple):
    """Training windows of one update."""

    rollout: Any  # columns [T, L * W, ...], learner by learner
    weight: Tensor  # [L, W]
    where: Tensor  # [L, W]: names the windows in `Replay.set_priorities`


class Replay(Generic[Columns]):
    """Ring buffer of the C newest steps of each stream. A window has consecutive steps of one stream, and may cross the
    ends of episodes. The draws for a learner do not depend on the others.

    With `priorities` a window is drawn by its priority (`priorities.py`), which is stored at its first step."""

    def __init__(
        self,
        columns: Columns,
        num_learners: int,
        length: int = 1,
        priorities: Priorities | None = None,
        *,
        restore: Callable[[Columns], Columns] = lambda columns: columns,
        from_oldest: bool = True,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """`columns` are zeros `[C, L * N, ...]`, `length` is the number T of steps of a window, and `restore` converts
        drawn columns. Uniform draws number windows from the oldest step, or from the first slot. Weights have this
        `dtype`."""
        self._columns, self._capacity, self._length = columns, len(columns[0]), length
        self._num_learners, self._num_envs = num_learners, columns[0].shape[1] // num_learners
        self._priorities, self._restore, self._from_oldest, self._dtype = priorities, restore, from_oldest, dtype
        self._count = 0  # steps added to each stream so far

    @property
    def size(self) -> int:
        """Number of stored steps per stream."""
        return min(self._count, self._capacity)

    def add(self, new: Columns) -> None:
        """Add the next steps `[T, B, ...]`, which replace the oldest."""
        before, self._count = self._count, self._count + len(new[0])
        steps = torch.arange(max(before, self._oldest), self._count, device=new[0].device)
        for column, values in zip(self._columns, new, strict=True):
            column[steps % self._capacity] = values[len(values) - len(steps) :].to(column.dtype)
        if self._priorities:
            self._begin_priorities(self._priorities, before)

    def draw(self, num_windows: int, key: Tensor, clock: Clock) -> Drawn:
        """Draw `num_windows` for each learner, uniformly or by priority, with random numbers from `key` (one int64).
        Draws are stratified: the i-th of k is in the i-th k-th of all windows. There must be a window.

        `weight` is 1, or corrects for the priorities."""
        shares = stratified(num_windows, key)  # [W]
        if self._priorities is None:
            number = (shares * self._num_starts * self._num_envs).long()
            first = self._oldest if self._from_oldest else 0
            where = self._place(number // self._num_starts, first + number % self._num_starts)
            where = where.expand(self._num_learners, -1)
            return Drawn(self._windows(where), torch.ones(where.shape, dtype=self._dtype, device=where.device), where)
        where, weight = self._priorities.draw(shares, clock)
        return Drawn(self._windows(where), weight.to(self._dtype), where)

    def set_priorities(self, where: Tensor, td_error: Tensor, clock: Clock) -> None:
        """Set the priorities of the last drawn windows by their absolute TD errors `[L, W]`."""
        if self._priorities:
            self._priorities.set(where, td_error, clock)

    def sweep(self, batches: int, key: Tensor) -> Iterator[Columns]:
        """Iterate over all stored steps once, in `batches` of nearly equal size. Windows are cut from the newest step
        backwards and shuffled; the remainder is dropped."""
        per_env = self.size // self._length
        number = shuffled(per_env * self._num_envs, key)
        start = self._count - (1 + number % per_env) * self._length
        for where in self._place(number // per_env, start).tensor_split(batches):
            yield self._windows(where.expand(self._num_learners, -1))

    def state_dict(self) -> dict[str, Any]:
        """Stored columns `[len, B, ...]` and priorities `[L, N * len]`."""
        size = self.size
        kept = {name: _first(column, size) for name, column in self._columns._asdict().items()}
        values = self._priorities.values.unflatten(1, (self._num_envs, -1)) if self._priorities else None
        priorities = None if values is None else values[..., :size].flatten(1).clone()
        return {"columns": kept, "count": self._count, "priorities": priorities}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._count = state["count"]
        for name, column in self._columns._asdict().items():
            saved = state["columns"][name]
            column[: len(saved)] = saved.view(len(saved), *column.shape[1:])
        if self._priorities:
            values = torch.zeros_like(self._priorities.values).unflatten(1, (self._num_envs, -1))
            saved = state["priorities"].unflatten(1, (self._num_envs, -1))
            values[..., : saved.shape[2]] = saved
            self._priorities.load(values.flatten(1))

    @property
    def _oldest(self) -> int:
        return max(0, self._count - self._capacity)

    @property
    def _num_starts(self) -> int:
        """Number of steps of a stream at which a window can start."""
        return self._count - self._length + 1 - self._oldest

    def _place(self, env: Tensor, step: Tensor) -> Tensor:
        """Slot of a step among those of its learner."""
        return env * self._capacity + step % self._capacity

    def _windows(self, where: Tensor) -> Columns:
        """Windows that start at the slots `[L, W]`, `[T, L * W, ...]`."""
        offset = torch.arange(self._length, device=where.device)[:, None, None]
        env, slot = where // self._capacity, (where + offset) % self._capacity  # [L, W], [T, L, W]
        env = env + torch.arange(self._num_learners, device=where.device)[:, None] * self._num_envs
        index = (slot * self._num_learners * self._num_envs + env).flatten(1)
        return self._restore(self._columns._make(column.flatten(0, 1)[index] for column in self._columns))

    def _begin_priorities(self, priorities: Priorities, before: int) -> None:
        """Set the priorities of new steps, after `before` earlier ones. No window can start at the last ones, which too
        few steps follow."""
        first = max(before - self._length + 1, self._oldest, 0)
        steps = torch.arange(first, self._count, device=priorities.values.device)
        envs = torch.arange(self._num_envs, device=steps.device)
        place = self._place(envs[:, None], steps).flatten().expand(self._num_learners, -1)
        priorities.begin(place, (steps <= self._count - self._length).repeat(self._num_envs))


def rollout_replay(
    source: ReplayConfig, spec: EnvSpec, num_learners: int, length: int, device: torch.device
) -> Replay[Rollout]:
    """Replay of `source.replay_buffer_length` steps per stream in the smallest indexable dtypes, with windows of
    `length` steps, drawn by priority with `source.priority_replay`."""
    shape = (source.replay_buffer_length, num_learners * source.num_envs)
    dtypes = (indexable(name) for name in column_dtypes(spec).values())
    columns = Rollout(*(torch.zeros(shape, dtype=dtype, device=device) for dtype in dtypes))
    rates = source.priority_replay_alpha, source.priority_replay_beta, source.priority_replay_eps
    places = source.num_envs * source.replay_buffer_length
    priorities = Priorities(num_learners, places, *rates, device) if source.priority_replay else None
    return Replay(columns, num_learners, length, priorities, restore=restored)


def stratified(count: int, key: Tensor) -> Tensor:
    """Stratified numbers (i + u_i) / count for i = 0 .. count - 1 with u_i uniform in [0, 1), float64 `[count]`."""
    lanes = torch.arange(count, device=key.device)
    return (lanes + uniform(key.expand(count), lanes).double()) / count


def shuffled(count: int, key: Tensor) -> Tensor:
    """Permutation of 0 .. count - 1, a function of `key` (one int64)."""
    return integers(key.expand(count), torch.arange(count, device=key.device), 1 << 30).argsort()


def restored(small: Rollout) -> Rollout:
    """Columns in their original dtypes: bool for the ends of episodes, int64 for all others."""
    columns = {name: column.long() for name, column in small._asdict().items()}
    return Rollout(**columns | {name: columns[name].bool() for name in ("terminated", "truncated")})


def indexable(name: str) -> torch.dtype:
    """Smallest dtype that PyTorch can index and that holds the values of NumPy's unsigned dtype `name`."""
    return {"uint8": torch.uint8, "uint16": torch.int32, "uint32": torch.int64}[name]


def _first(column: Tensor, size: int) -> Tensor:
    """First `size` rows, in separate storage unless these are all rows."""
    return column if size == len(column) else column[:size].clone()
