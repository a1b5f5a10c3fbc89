"""Prioritised experience replay (Schaul et al. 2016, "Prioritized experience replay", arXiv 1511.05952).

L learners with k slots of a replay each, of which W are drawn for each learner.
"""

from typing import Any

import torch
from torch import Tensor

from icrl.config.schedules import Clock, make_schedule
from icrl.rl.sum_tree import SumTree

_RANGE = 1e-150, 1e150  # keeps sums finite and above 0 for any alpha


class Priorities:
    """Priorities of the slots of a replay. A slot is drawn in proportion to its priority p. An empty slot has 0, a new
    entry the largest one of its learner and at least 1; then p = (td_error + eps)^alpha."""

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
        """Register new entries in the slots `[L, n]`; those with `usable` `[n]` can be drawn."""
        self._tree.set(where, usable * self.values.amax(1, keepdim=True).clamp(min=1.0))

    def draw(self, shares: Tensor, clock: Clock) -> tuple[Tensor, Tensor]:
        """Draw the slots at the shares `[W]` in [0, 1) of the total priority; returns them and their weights p^(-beta),
        divided by the largest drawn weight of the learner, `[L, W]` each."""
        where = self._tree.find(shares * self._tree.total[:, None])
        priority = self.values.gather(1, where)
        return where, (priority.amin(1, keepdim=True) / priority) ** self._beta(clock)

    def set(self, where: Tensor, td_error: Tensor, clock: Clock) -> None:
        """Set the priorities of slots by their absolute TD errors, `[L, W]` each."""
        priority = (td_error.double() + self._eps(clock)) ** self._alpha(clock)
        self._tree.set(where, priority.clamp(*_RANGE))

    def load(self, values: Tensor) -> None:
        """Restore priorities `[L, k]`."""
        self._tree.load(values)
