"""Sum trees for sampling in proportion to priorities (Schaul et al. 2016, "Prioritized experience replay", arXiv
1511.05952, appendix B.2.1).

L trees, one for each learner. Node 1 is the root, node i has the children 2i and 2i + 1.
"""

import torch
from torch import Tensor

_DENSE = 4  # nodes per changed leaf up to which a level is faster to sum as a whole than node by node


class SumTree:
    """L trees with the same number of leaves, all priorities 0 at first."""

    def __init__(self, num_trees: int, num_leaves: int, device: torch.device) -> None:
        self._depth = (num_leaves - 1).bit_length()
        self._first = 1 << self._depth  # node of leaf 0
        self._num_leaves = num_leaves
        self._sums = torch.zeros(num_trees, 2 * self._first, dtype=torch.float64, device=device)
        self._children = self._sums.view(-1, 2)  # of every node of every tree
        self._trees = torch.arange(num_trees, device=device)[:, None] * self._first

    @property
    def total(self) -> Tensor:
        """Sum of all priorities, `[L]`."""
        return self._sums[:, 1]

    @property
    def priorities(self) -> Tensor:
        """`[L, num_leaves]`, a view."""
        return self._sums[:, self._first : self._first + self._num_leaves]

    def set(self, leaf: Tensor, priority: Tensor) -> None:
        """Give the leaves `[L, k]` these priorities `[L, k]` >= 0; the larger counts if a leaf is named twice.

        Every sum is computed from two children, never updated by a difference, so no error accumulates."""
        node = leaf + self._first
        self._sums.scatter_reduce_(1, node, priority.double(), "amax", include_self=False)
        for level in reversed(range(self._depth)):
            node = node >> 1
            if 1 << level <= _DENSE * leaf.shape[1]:
                below = self._sums[:, 2 << level : 4 << level]
                self._sums[:, 1 << level : 2 << level] = below[:, 0::2] + below[:, 1::2]
            else:
                left, right = self._children_of(node)
                self._sums.scatter_(1, node, left + right)

    def find(self, mass: Tensor) -> Tensor:
        """Leaves `[L, k]` at `mass` `[L, k]` in [0, total): leaf i holds the interval from p_0 + ... + p_(i-1) to
        p_0 + ... + p_i. A leaf of priority 0 is never found, unless all leaves of the tree have priority 0."""
        node = torch.ones_like(mass, dtype=torch.long)
        for _ in range(self._depth):
            left, right = self._children_of(node)
            # The rest of the mass may be rounded up to the sum of a node: nothing is on its right then.
            to_right = (mass >= left) & (right > 0)
            mass = torch.where(to_right, mass - left, mass)
            node = 2 * node + to_right
        return node - self._first

    def _children_of(self, node: Tensor) -> tuple[Tensor, Tensor]:
        """Sums of the two children of the nodes `[L, k]`, `[L, k]` each."""
        left, right = self._children.index_select(0, (self._trees + node).flatten()).unbind(1)
        return left.view_as(node), right.view_as(node)

    def load(self, priorities: Tensor) -> None:
        """Set all leaves, `[L, num_leaves]`."""
        leaves = torch.arange(self._num_leaves, device=priorities.device)
        self.set(leaves.expand_as(priorities), priorities)
