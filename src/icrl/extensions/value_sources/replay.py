"""Experience replay: a buffer of the newest steps of every stream, from which training windows are drawn, uniformly or
by priority (Schaul et al. 2016, "Prioritized experience replay", arXiv 1511.05952).

T steps in a window, L learners, N environments of each, B = L * N streams (learner by learner), a capacity of C steps
per stream, W windows per learner. The columns are any named tuple of tensors `[C, B, ...]`: a `Rollout`, or the
transitions of the point game with one learner, one stream and windows of one step.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from icrl.config.schedules import Clock, make_schedule
from icrl.contracts import Rollout
from icrl.data.columns import column_forms, step_dtypes
from icrl.extensions.value_sources.options import ReplayConfig
from icrl.extensions.value_sources.sum_tree import SumTree
from icrl.randomness import uniform
from icrl.sources.collect import shuffled
from icrl.spaces import EnvSpec

_EPS = 1e-6  # added to the TD error of every window
_RANGE = 1e-150, 1e150  # of priorities: keeps sums finite and above 0 for any alpha

Columns = TypeVar("Columns", bound=Any)  # a named tuple of tensors


class Priorities:
    """Priorities of the k slots of each learner. A slot is drawn in proportion to its priority p. An empty slot has 0,
    a new entry the largest one of its learner and at least 1; then p = (td_error + eps)^alpha."""

    def __init__(self, num_learners: int, num_places: int, alpha: Any, beta: Any, device: torch.device) -> None:
        """`alpha` and `beta`: numbers or schedules."""
        self._tree = SumTree(num_learners, num_places, device)
        self._alpha, self._beta = make_schedule(alpha), make_schedule(beta)
        self.values, self.load = self._tree.priorities, self._tree.load  # [L, k] float64, a view

    def begin(self, where: Tensor, usable: Tensor) -> None:
        """Register new entries in the slots `[L, n]`; those with `usable` `[n]` can be drawn."""
        self._tree.set(where, usable * self.values.amax(1, keepdim=True).clamp(min=1.0))

    def draw(self, shares: Tensor, clock: Clock) -> tuple[Tensor, Tensor]:
        """Slots at the shares `[W]` in [0, 1) of the total priority, and their weights p^(-beta), divided by the
        largest drawn weight of the learner, `[L, W]` each."""
        where = self._tree.find(shares * self._tree.total[:, None])
        priority = self.values.gather(1, where)
        return where, (priority.amin(1, keepdim=True) / priority) ** self._beta(clock)

    def set(self, where: Tensor, td_error: Tensor, clock: Clock) -> None:
        """Set the priorities of slots by their absolute TD errors, `[L, W]` each."""
        priority = (td_error.double() + _EPS) ** self._alpha(clock)
        self._tree.set(where, priority.clamp(*_RANGE))


class Drawn(NamedTuple):
    """Training windows of one update."""

    rollout: Any  # columns [T, L * W, ...], learner by learner
    weight: Tensor  # [L, W]
    where: Tensor  # [L, W]: names the windows in `Replay.set_priorities`


class Replay(Generic[Columns]):
    """Ring buffer of the C newest steps of each stream. A window has consecutive steps of one stream, and may cross the
    ends of episodes; its priority is stored at its first step. The draws for a learner do not depend on the others."""

    def __init__(
        self,
        columns: Columns,
        num_learners: int,
        length: int = 1,
        priorities: Priorities | None = None,
        *,
        restore: Callable[[Columns], Columns] = lambda columns: columns,
        from_oldest: bool = True,
    ) -> None:
        """`columns` are zeros `[C, L * N, ...]`, `length` is the number T of steps of a window, and `restore` converts
        drawn columns. Uniform draws count from the oldest step, or the first slot."""
        self._columns, self._capacity, self._length = columns, len(columns[0]), length
        self._num_learners, self._num_envs = num_learners, columns[0].shape[1] // num_learners
        self._priorities, self._restore, self._from_oldest = priorities, restore, from_oldest
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
        if self._priorities:  # no window can start at the last steps, which too few steps follow
            steps = torch.arange(max(before - self._length + 1, self._oldest), self._count, device=steps.device)
            envs = torch.arange(self._num_envs, device=steps.device)
            where = self._place(envs[:, None], steps).flatten().expand(self._num_learners, -1)
            self._priorities.begin(where, (steps <= self._count - self._length).repeat(self._num_envs))

    def draw(self, num_windows: int, key: Tensor, clock: Clock) -> Drawn:
        """Draw `num_windows` for each learner with random numbers from `key` (one int64). They are stratified: the i-th
        of k is in the i-th k-th of all windows. There must be a window. Weights are 1, or correct for priorities."""
        shares = stratified(num_windows, key)  # [W]
        if self._priorities:
            where, weight = self._priorities.draw(shares, clock)
        else:
            starts = self.size - self._length + 1  # of windows in a stream
            number = (shares * starts * self._num_envs).long()
            first = self._oldest if self._from_oldest else 0
            where = self._place(number // starts, first + number % starts).expand(self._num_learners, -1)
            weight = torch.ones(where.shape, device=where.device)
        return Drawn(self._windows(where), weight.float(), where)

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
        size, priorities = self.size, None
        columns = self._columns._asdict().items()
        kept = {name: column if size == len(column) else column[:size].clone() for name, column in columns}
        if self._priorities:
            priorities = self._priorities.values.unflatten(1, (self._num_envs, -1))[..., :size].flatten(1).clone()
        return {"columns": kept, "count": self._count, "priorities": priorities}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._count = state["count"]
        for name, column in self._columns._asdict().items():
            saved = state["columns"][name]
            column[: len(saved)] = saved.view(len(saved), *column.shape[1:])
        if self._priorities:
            saved = state["priorities"].unflatten(1, (self._num_envs, -1))
            self._priorities.load(nn.functional.pad(saved, (0, self._capacity - saved.shape[2])).flatten(1))

    @property
    def _oldest(self) -> int:
        return max(0, self._count - self._capacity)

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


def rollout_replay(
    source: ReplayConfig, spec: EnvSpec, num_learners: int, length: int, device: torch.device
) -> Replay[Rollout]:
    """Replay in the smallest indexable dtypes, with windows of `length` steps."""
    capacity, forms = source.replay_buffer_length, column_forms(spec) | {"reward": ("float32", ())}
    shape = capacity, num_learners * source.num_envs
    empty = {
        name: torch.zeros(*shape, *of_step, dtype=indexable(dtype), device=device)
        for name, (dtype, of_step) in forms.items()
    }
    priorities = None
    if source.priority_replay:
        rates = source.priority_replay_alpha, source.priority_replay_beta
        priorities = Priorities(num_learners, source.num_envs * capacity, *rates, device)
    return Replay(Rollout(**empty), num_learners, length, priorities, restore=partial(restored, spec))


def stratified(count: int, key: Tensor) -> Tensor:
    """Stratified numbers (i + u_i) / count for i = 0 .. count - 1 with u_i uniform in [0, 1), float64 `[count]`."""
    lanes = torch.arange(count, device=key.device)
    return (lanes + uniform(key.expand(count), lanes).double()) / count


def restored(spec: EnvSpec, small: Rollout) -> Rollout:
    """Columns in the dtypes of `Step`."""
    dtypes = step_dtypes(spec)
    return Rollout(*(column.to(dtypes[name]) for name, column in zip(Rollout._fields, small, strict=True)))


def indexable(name: str) -> torch.dtype:
    """Smallest dtype that PyTorch can index and that holds the values of NumPy's dtype `name`."""
    integers = {"uint8": torch.uint8, "uint16": torch.int32, "uint32": torch.int64}
    return integers.get(name, torch.float32)
