"""Prioritised experience replay (Schaul et al. 2016, "Prioritized experience replay", arXiv 1511.05952).

L learners with k places of a memory each, W drawn for each of them.
"""

from typing import Any

import torch
from torch import Tensor

from icrl.config.schedules import Clock, make_schedule
from icrl.rl.sum_tree import SumTree

_RANGE = 1e-150, 1e150  # so that sums are finite and above 0, whatever alpha is


class Priorities:
    """A place is drawn in proportion to its priority: none at first, the largest there is of its learner, and at least
    1, for what is new, and then p = (td_error + eps)^alpha."""

    def __init__(
        self, num_learners: int, num_states: int, alpha: Any, beta: Any, eps: Any, device: torch.device
    ) -> None:
        """`alpha`, `beta` and `eps`: numbers or schedules."""
        self._tree = SumTree(num_learners, num_states, device)
        self._alpha, self._beta, self._eps = (make_schedule(rate) for rate in (alpha, beta, eps))

    @property
    def values(self) -> Tensor:
        """`[L, k]` float64, a view."""
        return self._tree.priorities

    def begin(self, where: Tensor, usable: Tensor) -> None:
        """Of the places `[L, n]`, which hold something new, those can be drawn for which `usable` `[n]` is true."""
        self._tree.set(where, usable * self.values.amax(1, keepdim=True).clamp(min=1.0))

    def draw(self, shares: Tensor, clock: Clock) -> tuple[Tensor, Tensor]:
        """The places at these shares `[W]` in [0, 1) of all priorities and what corrects for theirs, `[L, W]` each:
        p^(-beta), over the largest of those drawn for the learner."""
        where = self._tree.find(shares * self._tree.total[:, None])
        priority = self.values.gather(1, where)
        return where, (priority.amin(1, keepdim=True) / priority) ** self._beta(clock)

    def set(self, where: Tensor, td_error: Tensor, clock: Clock) -> None:
        """Tell how surprising `[L, W]` the places were that were drawn."""
        priority = (td_error.double() + self._eps(clock)) ** self._alpha(clock)
        self._tree.set(where, priority.clamp(*_RANGE))

    def load(self, values: Tensor) -> None:
        """Take priorities `[L, n]` of the first n places, and none for the others."""
        complete = torch.zeros_like(self.values)
        complete[:, : values.shape[1]] = values
        self._tree.load(complete)
