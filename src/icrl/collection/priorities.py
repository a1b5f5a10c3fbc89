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
    """Priorities of places. A place is drawn in proportion to its priority: 0 at first; for a new entry the largest one
    of its learner, and at least 1; then p = (td_error + eps)^alpha."""

    def __init__(
        self, num_learners: int, num_places: int, alpha: Any, beta: Any, eps: Any, device: torch.device
    ) -> None:
        """`alpha`, `beta` and `eps`: numbers or schedules."""
        self._tree = SumTree(num_learners, num_places, device)
        self._alpha, self._beta, self._eps = (make_schedule(rate) for rate in (alpha, beta, eps))

    @property
    def values(self) -> Tensor:
        """`[L, k]` float64, a view."""
        return self._tree.priorities

    def begin(self, where: Tensor, usable: Tensor) -> None:
        """The places `[L, n]` hold new entries; those with `usable` `[n]` can be drawn."""
        self._tree.set(where, usable * self.values.amax(1, keepdim=True).clamp(min=1.0))

    def draw(self, shares: Tensor, clock: Clock) -> tuple[Tensor, Tensor]:
        """Places at these shares `[W]` in [0, 1) of all priorities, and their weights p^(-beta), divided by the largest
        weight of the learner, `[L, W]` each."""
        where = self._tree.find(shares * self._tree.total[:, None])
        priority = self.values.gather(1, where)
        return where, (priority.amin(1, keepdim=True) / priority) ** self._beta(clock)

    def set(self, where: Tensor, td_error: Tensor, clock: Clock) -> None:
        """Set the priorities of places by their absolute TD errors, `[L, W]` each."""
        priority = (td_error.double() + self._eps(clock)) ** self._alpha(clock)
        self._tree.set(where, priority.clamp(*_RANGE))

    def load(self, values: Tensor) -> None:
        """Take priorities `[L, k]`."""
        self._tree.load(values)
