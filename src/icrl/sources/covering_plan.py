"""Covering plan: paths through a room, one per episode, that visit all cells and waste few steps.

S cells, H steps per episode, K paths. The search keeps W unfinished plans, which have C continuations.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from icrl.envs.rooms import NUM_ACTIONS, STAY, UP, next_cells

_RESTARTS = 12  # most searches, each with weights and random numbers of its own
_EFFORT = 1 << 19  # no search starts after so many steps of plans times cells of the room
_WIDTHS = (8, 64)  # least and most plans that are kept at a time
_WIDTH_TIMES_CELLS = 1 << 14  # between these
_WASTED = 1e4  # cost of a wasted step, above the cost of any position of the cells left
_NEVER = np.int16(2**15 - 1)  # distance to a cell that is not there

Ints = NDArray[np.int64]


@cache
def covering_plan(size: int, horizon: int, start: int) -> Ints:
    """Actions `[K, H]` of K walks from `start` of at most `horizon` = H moves, each ended by staying, that cover all
    cells an episode can reach in a room of this `size`.

    It is the best plan of several beam searches with fixed seeds, judged by the cells covered by the end of the first
    episode, then of the second, and so on. The searches end when `coverage_bound` is met or effort is used up."""
    plans: list[tuple[list[int], Ints]] = []
    effort = 0
    while len(plans) < _RESTARTS and effort < _EFFORT:
        plan = _search(size, horizon, start, np.random.default_rng(len(plans)))
        covered = cells_covered(plan, size, start)
        plans.append((covered, plan))
        if covered == [coverage_bound(size, horizon, start, number) for number in range(1, len(plan) + 1)]:
            break
        effort += plan.size * size**2
    return max(plans, key=lambda found: found[0])[1]  # all end with all cells: of two, the sooner has more


def cells_covered(plan: Ints, size: int, start: int) -> list[int]:
    """Number of cells beside `start` that a `plan` `[K, H]` has covered by the end of each episode."""
    after = next_cells(size).view(-1, NUM_ACTIONS).tolist()
    covered, numbers = {start}, list[int]()
    for path in plan.tolist():
        cell = start
        for action in path:
            cell = after[cell][action]
            covered.add(cell)
        numbers.append(len(covered) - 1)
    return numbers


def coverage_bound(size: int, horizon: int, start: int, num_episodes: int) -> int:
    """Upper bound on the cells beside `start` that `num_episodes` = k walks of `horizon` = H moves can cover:

        min over r = 0 .. H of D(r) + k (H - r),    D(r): cells that are 1 to r moves away,

    because the first r moves of a walk lead no further. r = 0 gives k H, r = H the number of cells in reach."""
    within = np.bincount(_distances(np.array(start), size)).cumsum() - 1
    radius = np.arange(horizon + 1)
    return int((within[radius.clip(max=len(within) - 1)] + num_episodes * (horizon - radius)).min())


def _distances(cell: Ints, size: int) -> Ints:
    """Moves from each `cell` `[...]` to all cells, `[..., S]`."""
    row, column = np.divmod(np.arange(size**2), size)
    return np.abs(cell[..., None] // size - row) + np.abs(cell[..., None] % size - column)


class _Plans(NamedTuple):
    """Plans up to some step, the best first."""

    left: NDArray[np.bool_]  # [W, S + 1]: cells not covered yet; the last column is false and stands for walls
    cell: Ints  # [W]: position of the walk
    covered: Ints  # [W]: number of cells covered
    cost: NDArray[np.float64]  # [W]: cost of the position of the cells left
    name: Ints  # [W]: hash of the cells left


def _search(size: int, horizon: int, start: int, rng: np.random.Generator) -> Ints:
    """Plan found by one beam search."""
    beam = _Beam(size, start, rng)
    away = _distances(np.array(start), size)
    zero = np.zeros(1, np.int64)
    plans = _Plans(np.append((away > 0) & (away <= horizon), False)[None], zero, zero, np.zeros(1), zero)
    steps: list[tuple[Ints, Ints]] = []  # of each kept plan: number of the plan that it continues, and its move
    while plans.left[0].any():
        time = len(steps) % horizon
        if time == 0:
            plans = plans._replace(cell=np.full(len(plans.cell), start))
        plans, origin, move = beam.continued(plans, horizon - time - 1)
        steps.append((origin, move))
    moves, kept = [STAY] * (-len(steps) % horizon), 0
    for origin, move in reversed(steps):
        moves.append(int(move[kept]))
        kept = origin[kept]
    return np.array(moves[::-1]).reshape(-1, horizon)


class _Beam:
    """Selection of the plans to keep: of all continuations by one move those that wasted the fewest steps, with the
    steps to the nearest cell left; among equal ones, those with the lowest cost of the cells left.

    A cell left costs more the fewer of its neighbours are left, because it may need a walk by itself. Covering a cell
    near the start costs too, because every later walk passes there. Both weights are drawn, and a noise breaks ties."""

    def __init__(self, size: int, start: int, rng: np.random.Generator) -> None:
        num_cells = size**2
        self._row, self._column = np.divmod(np.arange(num_cells, dtype=np.int16), size)
        self._after = next_cells(size).view(-1, NUM_ACTIONS)[:, UP:].numpy()  # [S, 4]
        beyond = np.full((1, self._after.shape[1]), num_cells)
        stays = self._after == np.arange(num_cells)[:, None]
        self._neighbours = np.concatenate([np.where(stays, num_cells, self._after), beyond])  # [S + 1, 4]
        self._width = int(np.clip(_WIDTH_TIMES_CELLS // num_cells, *_WIDTHS))
        self._alone = np.arange(4, -1, -1) ** int(rng.integers(1, 4))  # cost of a cell left, by neighbours left
        self._near = rng.uniform(0, 6) / np.maximum(_distances(np.array(start), size), 1) ** 2  # cost of covering
        self._hash = rng.integers(1 << 62, size=num_cells)
        self._luck, self._rng = rng.uniform(0, 4), rng

    def continued(self, plans: _Plans, steps_left: int) -> tuple[_Plans, Ints, Ints]:
        """Best continuations of `plans`, the number of the plan that each continues, and its move, `[W]`. After the
        move `steps_left` steps of the episode remain."""
        origin, move = (self._after[plans.cell] != plans.cell[:, None]).nonzero()
        cell = self._after[plans.cell[origin], move]  # [C]
        new, around = plans.left[origin, cell], self._neighbours[cell]
        left = plans.left[origin[:, None], around]  # [C, 4]: neighbours left
        theirs = plans.left[origin[:, None, None], self._neighbours[around]].sum(2)  # and their own neighbours left
        lonelier = (left * (self._alone[(theirs - 1).clip(min=0)] - self._alone[theirs])).sum(1)
        cost = plans.cost[origin] + new * (lonelier - self._alone[left.sum(1)] + self._near[cell])
        covered, name = plans.covered[origin] + new, plans.name[origin] ^ (new * self._hash[cell])
        stuck, walk = (~left.any(1)).nonzero()[0], np.zeros(len(cell))
        walk[stuck] = self._steps_to_next(plans.left[origin[stuck]], cell[stuck])
        worth = _WASTED * (covered - walk.clip(max=steps_left)) - cost + self._luck * self._rng.random(len(cell))
        _, different = np.unique(name * NUM_ACTIONS + cell, return_index=True)
        kept = different[np.argsort(-worth[different], kind="stable")[: self._width]]
        after = plans.left[origin[kept]]
        after[np.arange(len(kept)), cell[kept]] = False
        return _Plans(after, cell[kept], covered[kept], cost[kept], name[kept]), origin[kept], move[kept] + UP

    def _steps_to_next(self, left: NDArray[np.bool_], cell: Ints) -> Ints:
        """Wasted steps from `cell` `[C]` to the nearest other cell `left` `[C, S + 1]`; 0 if there is none."""
        row, column = self._row[cell, None], self._column[cell, None]
        distance = np.where(left[:, :-1], abs(self._row - row) + abs(self._column - column), _NEVER)
        distance[np.arange(len(cell)), cell] = _NEVER
        nearest = distance.min(1)
        return np.where(nearest < _NEVER, nearest - 1, 0)
