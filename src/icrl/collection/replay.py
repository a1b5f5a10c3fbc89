"""Experience replay: the newest steps of every stream, and windows of them that are drawn to learn from.

T steps in a window, L learners, N environments of each, B = L * N streams (learner by learner), C steps that are kept
of a stream, W windows per learner.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from icrl.collection.priorities import Priorities
from icrl.config.schedules import Clock
from icrl.config.training_schema import ReplayConfig
from icrl.contracts import EnvSpec, Rollout
from icrl.data.history_store import column_dtypes
from icrl.randomness import integers, uniform


class Drawn(NamedTuple):
    """Windows to learn from in one update."""

    rollout: Rollout  # [T, L * W], learner by learner
    weight: Tensor  # [L, W]
    where: Tensor  # [L, W]: what `Replay.set_priorities` knows them by


class Replay:
    """A ring of C = `source.replay_buffer_length` steps of each stream. A window is made of steps that follow each
    other in one stream; it may cross the ends of episodes. What is drawn for a learner does not depend on the others.

    With `source.priority_replay` a window is drawn by its priority (`priorities.py`), which its first step keeps."""

    def __init__(
        self, source: ReplayConfig, spec: EnvSpec, num_learners: int, length: int, device: torch.device
    ) -> None:
        """`length`: steps T of a window."""
        self._capacity, self._length = source.replay_buffer_length, length
        self._num_learners, self._num_envs = num_learners, source.num_envs
        shape = (self._capacity, num_learners * source.num_envs)
        dtypes = (indexable(name) for name in column_dtypes(spec).values())
        self._columns = Rollout(*(torch.zeros(shape, dtype=dtype, device=device) for dtype in dtypes))
        self._count = 0  # steps of each stream that were ever added
        rates = source.priority_replay_alpha, source.priority_replay_beta, source.priority_replay_eps
        places = self._num_envs * self._capacity
        self._priorities = Priorities(num_learners, places, *rates, device) if source.priority_replay else None

    def add(self, rollout: Rollout) -> None:
        """Take in `[T, B]` transitions that follow those before, in place of the oldest."""
        before, self._count = self._count, self._count + len(rollout.obs)
        steps = torch.arange(max(before, self._count - self._capacity), self._count, device=rollout.obs.device)
        for column, new in zip(self._columns, rollout, strict=True):
            column[steps % self._capacity] = new[len(new) - len(steps) :].to(column.dtype)
        if self._priorities:
            self._give_priorities(self._priorities, before)

    def draw(self, num_windows: int, key: Tensor, clock: Clock) -> Drawn:
        """`num_windows` for each learner with the random numbers that `key` (one int64) names, uniformly over all
        windows there are or by priority; stratified: the i-th of k falls on the i-th k-th of them. There must be one.

        `weight` is 1, or corrects for the priorities."""
        shares = stratified(num_windows, key)  # [W]
        if self._priorities is None:
            number = (shares * self._num_starts * self._num_envs).long()
            where = self._leaf(number // self._num_starts, self._oldest + number % self._num_starts)
            where = where.expand(self._num_learners, -1)
            return Drawn(self._windows(where), torch.ones(where.shape, device=where.device), where)
        where, weight = self._priorities.draw(shares, clock)
        return Drawn(self._windows(where), weight.float(), where)

    def set_priorities(self, where: Tensor, td_error: Tensor, clock: Clock) -> None:
        """Tell how surprising `[L, W]` the windows were that `draw` gave last."""
        if self._priorities:
            self._priorities.set(where, td_error, clock)

    def sweep(self, batches: int, key: Tensor) -> Iterator[Rollout]:
        """All that is kept, once: cut into windows from the newest step backwards, what is left over dropped, and dealt
        out in `batches` of nearly equal size, shuffled."""
        per_env = min(self._count, self._capacity) // self._length
        number = shuffled(per_env * self._num_envs, key)
        start = self._count - (1 + number % per_env) * self._length
        for where in self._leaf(number // per_env, start).tensor_split(batches):
            yield self._windows(where.expand(self._num_learners, -1))

    def state_dict(self) -> dict[str, Any]:
        """All that is kept, which a continued run draws the same windows from."""
        priorities = self._priorities.values.clone() if self._priorities else None
        return {"columns": self._columns._asdict(), "count": self._count, "priorities": priorities}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, column in self._columns._asdict().items():
            column.copy_(state["columns"][name])
        self._count = state["count"]
        if self._priorities:
            self._priorities.load(state["priorities"])

    @property
    def _oldest(self) -> int:
        return max(0, self._count - self._capacity)

    @property
    def _num_starts(self) -> int:
        """Steps of a stream that a window can start with."""
        return self._count - self._length + 1 - self._oldest

    def _leaf(self, env: Tensor, step: Tensor) -> Tensor:
        """The place of a step among those of a learner."""
        return env * self._capacity + step % self._capacity

    def _windows(self, where: Tensor) -> Rollout:
        """The windows that start at the places `[L, W]`, `[T, L * W]` int64 and bool."""
        offset = torch.arange(self._length, device=where.device)[:, None, None]
        env, slot = where // self._capacity, (where + offset) % self._capacity  # [L, W], [T, L, W]
        env = env + torch.arange(self._num_learners, device=where.device)[:, None] * self._num_envs
        index = (slot * self._num_learners * self._num_envs + env).flatten(1)
        return restored(Rollout(*(column.view(-1)[index] for column in self._columns)))

    def _give_priorities(self, priorities: Priorities, before: int) -> None:
        """After `before` steps had become more: windows can start with new ones now, but for the last steps, which too
        few follow."""
        first = max(before - self._length + 1, self._oldest, 0)
        steps = torch.arange(first, self._count, device=priorities.values.device)
        envs = torch.arange(self._num_envs, device=steps.device)
        leaf = self._leaf(envs[:, None], steps).flatten().expand(self._num_learners, -1)
        priorities.begin(leaf, (steps <= self._count - self._length).repeat(self._num_envs))


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
    """The smallest dtype that holds what NumPy's unsigned one of this `name` holds, among those PyTorch can index."""
    return {"uint8": torch.uint8, "uint16": torch.int32, "uint32": torch.int64}[name]
