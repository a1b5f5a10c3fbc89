"""Replay of single transitions: the newest that there are, drawn uniformly or by priority.

C transitions that are kept, W that are drawn, D numbers in an observation.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from icrl.collection.priorities import Priorities
from icrl.collection.replay import stratified
from icrl.config.players_schema import TransitionsConfig
from icrl.config.schedules import Clock
from icrl.contracts import PipelineError


class Transitions(NamedTuple):
    """Moves of one role. Where a game was truncated `next_observation` is the last one of that game, which its value is
    to be bootstrapped from."""

    observation: Tensor  # [W, D]
    action: Tensor  # [W] int64
    reward: Tensor  # [W]
    terminated: Tensor  # [W] bool
    next_observation: Tensor  # [W, D]


class Drawn(NamedTuple):
    transitions: Transitions
    weight: Tensor  # [W]
    where: Tensor  # [W]: what `set_priorities` knows them by


class TransitionReplay:
    """A ring of C = `replay.size` transitions. With `kind: prioritised` one is drawn by its priority
    (`priorities.py`)."""

    def __init__(self, config: TransitionsConfig, like: Transitions) -> None:
        """Columns are of the dtypes and on the device of `like`, any transitions. Raises `PipelineError` where memory
        does not hold so many."""
        self._capacity = config.size
        try:
            self._columns = Transitions(*(one.new_zeros(self._capacity, *one.shape[1:]) for one in like))
        except RuntimeError as error:  # all that the allocator raises
            raise PipelineError(f"replay.size={config.size}: there is no memory for so many transitions") from error
        self._count = 0  # transitions that were ever added
        rates, device = (config.alpha, config.beta, config.eps), like.action.device
        self._priorities = Priorities(1, self._capacity, *rates, device) if config.kind == "prioritised" else None

    def __len__(self) -> int:
        return min(self._count, self._capacity)

    def add(self, new: Transitions) -> None:
        """Take in transitions in place of the oldest; of more than there is room for, the last."""
        before, self._count = self._count, self._count + len(new.action)
        place = torch.arange(max(before, self._count - self._capacity), self._count, device=new.action.device)
        place %= self._capacity
        for column, values in zip(self._columns, new, strict=True):
            column[place] = values[len(values) - len(place) :]
        if self._priorities:
            self._priorities.begin(place[None], torch.ones_like(place))

    def draw(self, number: int, key: Tensor, clock: Clock) -> Drawn:
        """`number` of them with the random numbers that `key` (one int64) names, with replacement; stratified: the i-th
        of k falls on the i-th k-th of what is kept. There must be one.

        `weight` is 1, or corrects for the priorities."""
        shares = stratified(number, key)
        if self._priorities is None:
            where = (shares * len(self)).long()
            return Drawn(self._at(where), torch.ones_like(shares, dtype=self._columns.reward.dtype), where)
        where, weight = (drawn[0] for drawn in self._priorities.draw(shares, clock))
        return Drawn(self._at(where), weight.to(self._columns.reward.dtype), where)

    def set_priorities(self, where: Tensor, td_error: Tensor, clock: Clock) -> None:
        """Tell how surprising `[W]` the transitions were that `draw` gave last."""
        if self._priorities:
            self._priorities.set(where[None], td_error[None], clock)

    def state_dict(self) -> dict[str, Any]:
        """All that is kept, which a continued run draws the same transitions from."""
        kept = {name: column[: len(self)].clone() for name, column in self._columns._asdict().items()}
        priorities = self._priorities.values[:, : len(self)].clone() if self._priorities else None
        return {"columns": kept, "count": self._count, "priorities": priorities}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._count = state["count"]
        for name, column in self._columns._asdict().items():
            column[: len(self)] = state["columns"][name]
        if self._priorities:
            self._priorities.load(state["priorities"])

    def _at(self, where: Tensor) -> Transitions:
        return Transitions(*(column[where] for column in self._columns))
