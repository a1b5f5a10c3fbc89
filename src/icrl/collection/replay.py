"""Experience replay: the newest steps of every stream, and windows of them that are drawn to learn from.

T steps in a window, L learners, N environments of each, B = L * N streams (learner by learner), C steps that are kept
of a stream, W windows per learner. The columns of a replay are any named tuple of tensors `[C, B, ...]`: a `Rollout`,
or the transitions of the point game with one learner, one stream and windows of one step.
"""

from collections.abc import Callable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from icrl.collection.priorities import Priorities
from icrl.config.schedules import Clock
from icrl.contracts import EnvSpec, Rollout
from icrl.data.history_store import column_dtypes
from icrl.randomness import integers, uniform
from icrl.sources.options import ReplayConfig

Columns = TypeVar("Columns", bound=Any)  # a named tuple of tensors


class Drawn(NamedTuple):
    """Windows to learn from in one update."""

    rollout: Any  # columns [T, L * W, ...], learner by learner
    weight: Tensor  # [L, W]
    where: Tensor  # [L, W]: names the windows in `Replay.set_priorities`


class Replay(Generic[Columns]):
    """Ring of the C newest steps of each stream. A window is made of consecutive steps of one stream; it may cross the
    ends of episodes. What is drawn for a learner does not depend on the others.

    With `priorities` a window is drawn by its priority (`priorities.py`), which its first step keeps."""

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
        columns that are drawn. Uniform draws number windows from the oldest step on, or from the first place. Weights
        are of this `dtype`."""
        self._columns, self._capacity, self._length = columns, len(columns[0]), length
        self._num_learners, self._num_envs = num_learners, columns[0].shape[1] // num_learners
        self._priorities, self._restore, self._from_oldest, self._dtype = priorities, restore, from_oldest, dtype
        self._count = 0  # steps of each stream that were ever added

    @property
    def size(self) -> int:
        """Steps of each stream that are kept."""
        return min(self._count, self._capacity)

    def add(self, new: Columns) -> None:
        """Take in `[T, B, ...]` steps that follow those before, in place of the oldest."""
        before, self._count = self._count, self._count + len(new[0])
        steps = torch.arange(max(before, self._oldest), self._count, device=new[0].device)
        for column, values in zip(self._columns, new, strict=True):
            column[steps % self._capacity] = values[len(values) - len(steps) :].to(column.dtype)
        if self._priorities:
            self._begin_priorities(self._priorities, before)

    def draw(self, num_windows: int, key: Tensor, clock: Clock) -> Drawn:
        """Draw `num_windows` for each learner with the random numbers that `key` (one int64) names, uniformly over all
        windows or by priority; stratified: the i-th of k falls on the i-th k-th of them. There must be one.

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
        """Set the priorities of the windows that `draw` gave last by their absolute TD errors `[L, W]`."""
        if self._priorities:
            self._priorities.set(where, td_error, clock)

    def sweep(self, batches: int, key: Tensor) -> Iterator[Columns]:
        """All that is kept, once: cut into windows from the newest step backwards, the remainder dropped, and dealt out
        in `batches` of nearly equal size, shuffled."""
        per_env = self.size // self._length
        number = shuffled(per_env * self._num_envs, key)
        start = self._count - (1 + number % per_env) * self._length
        for where in self._place(number // per_env, start).tensor_split(batches):
            yield self._windows(where.expand(self._num_learners, -1))

    def state_dict(self) -> dict[str, Any]:
        """All that is kept: columns `[len, B, ...]` and priorities `[L, N * len]`."""
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
        """Steps of a stream that a window can start with."""
        return self._count - self._length + 1 - self._oldest

    def _place(self, env: Tensor, step: Tensor) -> Tensor:
        """Number of a step among those of a learner."""
        return env * self._capacity + step % self._capacity

    def _windows(self, where: Tensor) -> Columns:
        """Windows that start at the places `[L, W]`, `[T, L * W, ...]`."""
        offset = torch.arange(self._length, device=where.device)[:, None, None]
        env, slot = where // self._capacity, (where + offset) % self._capacity  # [L, W], [T, L, W]
        env = env + torch.arange(self._num_learners, device=where.device)[:, None] * self._num_envs
        index = (slot * self._num_learners * self._num_envs + env).flatten(1)
        return self._restore(self._columns._make(column.flatten(0, 1)[index] for column in self._columns))

    def _begin_priorities(self, priorities: Priorities, before: int) -> None:
        """Windows can start with new steps, once there were `before` of them, except with the last ones, which too few
        follow."""
        first = max(before - self._length + 1, self._oldest, 0)
        steps = torch.arange(first, self._count, device=priorities.values.device)
        envs = torch.arange(self._num_envs, device=steps.device)
        place = self._place(envs[:, None], steps).flatten().expand(self._num_learners, -1)
        priorities.begin(place, (steps <= self._count - self._length).repeat(self._num_envs))


def rollout_replay(
    source: ReplayConfig, spec: EnvSpec, num_learners: int, length: int, device: torch.device
) -> Replay[Rollout]:
    """Replay of `source.replay_buffer_length` steps of each stream in columns as small as can be indexed; windows of
    `length` steps, by priority with `source.priority_replay`."""
    shape = (source.replay_buffer_length, num_learners * source.num_envs)
    dtypes = (indexable(name) for name in column_dtypes(spec).values())
    columns = Rollout(*(torch.zeros(shape, dtype=dtype, device=device) for dtype in dtypes))
    rates = source.priority_replay_alpha, source.priority_replay_beta, source.priority_replay_eps
    places = source.num_envs * source.replay_buffer_length
    priorities = Priorities(num_learners, places, *rates, device) if source.priority_replay else None
    return Replay(columns, num_learners, length, priorities, restore=restored)


def stratified(count: int, key: Tensor) -> Tensor:
    """(i + u_i) / count for i = 0 .. count - 1 with u_i uniform in [0, 1), float64 `[count]`."""
    lanes = torch.arange(count, device=key.device)
    return (lanes + uniform(key.expand(count), lanes).double()) / count


def shuffled(count: int, key: Tensor) -> Tensor:
    """The numbers 0 .. count - 1 in the order that `key` (one int64) names."""
    return integers(key.expand(count), torch.arange(count, device=key.device), 1 << 30).argsort()


def restored(small: Rollout) -> Rollout:
    """Columns in small dtypes as they came: bool for the ends, int64 for all others."""
    columns = {name: column.long() for name, column in small._asdict().items()}
    return Rollout(**columns | {name: columns[name].bool() for name in ("terminated", "truncated")})


def indexable(name: str) -> torch.dtype:
    """The smallest dtype that PyTorch can index and that holds the values of NumPy's unsigned dtype `name`."""
    return {"uint8": torch.uint8, "uint16": torch.int32, "uint32": torch.int64}[name]


def _first(column: Tensor, size: int) -> Tensor:
    """The first rows, in a storage of their own unless they are all."""
    return column if size == len(column) else column[:size].clone()
