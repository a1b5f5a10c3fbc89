"""The covering plan: paths through a room, one an episode, that leave no cell out and waste few steps.

B streams, S cells, H steps an episode, K paths. The search keeps W unfinished plans, which have C continuations.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from icrl.contracts import Step
from icrl.envs.dark_room import DarkRoom
from icrl.envs.rooms import NUM_ACTIONS, STAY, UP, next_cells
from icrl.sources.goal_memory import Found, GoalMemory

_RESTARTS = 12  # searches at most, each with weights and luck of its own
_EFFORT = 1 << 19  # steps of plans times cells of the room, after which no search is started anew
_WIDTHS = (8, 64)  # fewest and most plans that are kept at a time
_WIDTH_TIMES_CELLS = 1 << 14  # between these
_WASTED = 1e4  # what a wasted step costs, which is more than how the cells left lie can

_NEVER = np.int16(2**15 - 1)  # a distance that is none

Ints = NDArray[np.int64]


class CoveringCarry(NamedTuple):
    found: Found
    episode: Tensor  # [B] int64: episodes finished


class CoveringPlan(GoalMemory):
    """For DarkRoom with one start and actions that are not permuted: it walks the k-th path of `covering_plan` in
    episode k, and once a reward showed the goal takes a shortest path there ever after. After the last path it starts
    over.

    As long as nothing is found, all that any policy learns is which cells are not the goal. So by the end of episode k
    it has found a goal only if k walks of H steps pass it, and k walks cover at most `coverage_bound` cells. Where the
    plan covers as many by the end of every episode, and all cells are equally likely to be the goal, no policy has a
    higher success in any episode of the terminating room: there, this is the Bayes-optimal explorer as success judges
    it. Others may need fewer steps, or collect more in the classic room; and where the plan covers less than the bound,
    nothing is claimed.
    """

    def __init__(self, env: DarkRoom) -> None:
        super().__init__(env)
        self._plan = torch.from_numpy(covering_plan(env.size, env.spec.max_episode_steps, int(env.starts[0])))

    def initial_carry(self, num_streams: int) -> CoveringCarry:
        return CoveringCarry(self.nothing_found(num_streams), torch.zeros(num_streams, dtype=torch.long))

    def act(self, carry: CoveringCarry, step: Step, noise: Tensor) -> tuple[Tensor, CoveringCarry]:
        found = self.learned(carry.found, step)
        episode = carry.episode.to(step.obs.device) + (step.terminated | step.truncated)
        planned = self._plan.to(step.obs.device)[episode % len(self._plan), step.timestep]
        return self.to_goal(found, step, planned), CoveringCarry(found, episode)


@cache
def covering_plan(size: int, horizon: int, start: int) -> Ints:
    """Actions `[K, H]` of K walks of at most `horizon` = H moves from `start`, each ended by staying, that cover all
    cells an episode can reach in a room of this `size`.

    The plan is the best that is found, judged by the cells covered by the end of the first episode, then of the second,
    and so on: a beam search over whole plans, started anew until `coverage_bound` is met or effort is used up. All its
    luck is from fixed seeds."""
    plans: list[tuple[list[int], Ints]] = []
    effort = 0
    while len(plans) < _RESTARTS and effort < _EFFORT:
        plan = _search(size, horizon, start, np.random.default_rng(len(plans)))
        covered = cells_covered(plan, size, start)
        plans.append((covered, plan))
        if covered == [coverage_bound(size, horizon, start, number) for number in range(1, len(plan) + 1)]:
            break
        effort += plan.size * size**2
    _, best = max(plans, key=lambda found: found[0])  # all end with all cells: of two, the sooner has more
    return best


def cells_covered(plan: Ints, size: int, start: int) -> list[int]:
    """How many cells beside `start` a `plan` `[K, H]` has covered by the end of each episode."""
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
    """What no `num_episodes` = k walks of `horizon` = H moves from `start` exceed in cells beside it,

        min over r = 0 .. H of D(r) + k (H - r),    D(r): cells that are 1 to r moves away,

    as the first r moves of a walk lead no further. With r = 0 it is k H, with r = H the number of cells in reach."""
    within = np.bincount(_distances(np.array(start), size)).cumsum() - 1
    radius = np.arange(horizon + 1)
    return int((within[radius.clip(max=len(within) - 1)] + num_episodes * (horizon - radius)).min())


def _distances(cell: Ints, size: int) -> Ints:
    """Moves from each `cell` `[...]` to all cells, `[..., S]`."""
    row, column = np.divmod(np.arange(size**2), size)
    return np.abs(cell[..., None] // size - row) + np.abs(cell[..., None] % size - column)


class _Plans(NamedTuple):
    """Plans up to some step, the best first."""

    left: NDArray[np.bool_]  # [W, S + 1]: cells not covered yet; the last column is what lies beyond the walls
    cell: Ints  # [W]: where the walk is
    covered: Ints  # [W]: how many cells
    cost: NDArray[np.float64]  # [W]: how unfavourably the cells lie that are left
    name: Ints  # [W]: a hash of the cells left


def _search(size: int, horizon: int, start: int, rng: np.random.Generator) -> Ints:
    """A plan as `covering_plan` describes it, by one beam search."""
    beam = _Beam(size, start, rng)
    away = _distances(np.array(start), size)
    zero = np.zeros(1, np.int64)
    plans = _Plans(np.append((away > 0) & (away <= horizon), False)[None], zero, zero, np.zeros(1), zero)
    steps: list[tuple[Ints, Ints]] = []  # for each plan that was kept, which plan it continues, and its move
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
    """What a beam search keeps: of all continuations by one move those that have wasted the fewest steps, counting the
    steps to the nearest cell left; of these, those where the cells left lie well.

    A cell left is the worse the fewer of its neighbours are left, as it may have to be fetched by itself; and one near
    the start is worth keeping, as every later walk has to pass there. How much either counts is drawn, as are numbers
    that tell alike plans apart."""

    def __init__(self, size: int, start: int, rng: np.random.Generator) -> None:
        num_cells = size**2
        self._row, self._column = np.divmod(np.arange(num_cells, dtype=np.int16), size)
        self._after = next_cells(size).view(-1, NUM_ACTIONS)[:, UP:].numpy()  # [S, 4]
        beyond = np.full((1, self._after.shape[1]), num_cells)
        stays = self._after == np.arange(num_cells)[:, None]
        self._neighbours = np.concatenate([np.where(stays, num_cells, self._after), beyond])  # [S + 1, 4]
        self._width = int(np.clip(_WIDTH_TIMES_CELLS // num_cells, *_WIDTHS))
        self._alone = np.arange(4, -1, -1) ** int(rng.integers(1, 4))  # cost of a cell left, by neighbours left
        self._near = (
            rng.uniform(0, 6) / np.maximum(_distances(np.array(start), size), 1) ** 2
        )  # cost of covering a cell
        self._hash = rng.integers(1 << 62, size=num_cells)
        self._luck, self._rng = rng.uniform(0, 4), rng

    def continued(self, plans: _Plans, steps_left: int) -> tuple[_Plans, Ints, Ints]:
        """The best continuations of `plans`, which of them each continues, and by which move `[W]`; after it
        `steps_left` steps of the episode remain."""
        origin, move = (self._after[plans.cell] != plans.cell[:, None]).nonzero()
        cell = self._after[plans.cell[origin], move]  # [C]
        new, around = plans.left[origin, cell], self._neighbours[cell]
        left = plans.left[origin[:, None], around]  # [C, 4]: neighbours left
        theirs = plans.left[origin[:, None, None], self._neighbours[around]].sum(2)  # how many neighbours of their own
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
        """Steps that lead nowhere new on the way from `cell` `[C]` to the nearest other one `left` `[C, S + 1]`; 0
        where there is none."""
        row, column = self._row[cell, None], self._column[cell, None]
        distance = np.where(left[:, :-1], abs(self._row - row) + abs(self._column - column), _NEVER)
        distance[np.arange(len(cell)), cell] = _NEVER
        nearest = distance.min(1)
        return np.where(nearest < _NEVER, nearest - 1, 0)
