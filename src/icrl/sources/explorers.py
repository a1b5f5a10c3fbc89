"""Explorers: policies for DarkRoom that look for the goal in a fixed way, and take a shortest path to it once found.

They stand beside the model as references. Their memory of the goal is perfect, and they remember nothing else. One of
them walks a covering plan: paths through a room, one per episode, that visit all cells and waste few steps.

S cells, H steps per episode, K paths. The search keeps W unfinished plans, which have C continuations.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from icrl.contracts import Step
from icrl.envs.dark_room import DarkRoom
from icrl.envs.rooms import NUM_ACTIONS, STAY, UP, first_move, next_cells
from icrl.randomness import draw_possible

KEPT = 0.5  # probability that a persistent walk keeps its direction
_RESTARTS = 12  # most searches, each with weights and random numbers of its own
_EFFORT = 1 << 19  # no search starts after so many steps of plans times cells of the room
_WIDTHS = (8, 64)  # least and most plans that are kept at a time
_WIDTH_TIMES_CELLS = 1 << 14  # between these
_WASTED = 1e4  # cost of a wasted step, above the cost of any position of the cells left
_NEVER = np.int16(2**15 - 1)  # distance to a cell that is not there

Ints = NDArray[np.int64]


class Memory(NamedTuple):
    """Carry of an explorer."""

    goal: Tensor  # [B] int64: cell of the goal, -1 until a reward showed it
    last: Tensor  # [B] int64: last exploring action
    episode: Tensor  # [B] int64: episodes finished


class Explorer:
    """Base of explorers; a subclass gives `explore`."""

    def __init__(self, env: DarkRoom) -> None:
        self._size = env.size

    def initial_carry(self, num_streams: int) -> Memory:
        zero = torch.zeros(num_streams, dtype=torch.long)
        return Memory(zero - 1, zero, zero)

    def act(self, carry: Memory, step: Step, noise: Tensor) -> tuple[Tensor, Memory]:
        goal, last, episode = (column.to(step.obs.device) for column in carry)
        goal = torch.where(step.reward > 0, step.final_obs, goal)
        episode = episode + (step.terminated | step.truncated)
        action = self.explore(Memory(goal, last, episode), step, noise)
        return torch.where(goal < 0, action, first_move(step.obs, goal, self._size)), Memory(goal, action, episode)

    def explore(self, memory: Memory, step: Step, noise: Tensor) -> Tensor:
        """Actions `[B]` while the goal is unknown."""
        raise NotImplementedError


class UniformWalk(Explorer):
    """Takes each of the five actions with the same probability."""

    def explore(self, memory: Memory, step: Step, noise: Tensor) -> Tensor:
        return (noise * NUM_ACTIONS).long()


class PersistentWalk(Explorer):
    """Repeats its last move with probability 1/2, else takes one of the four moves with the same probability, also at
    the start of an episode and at walls. It never stays on purpose."""

    def explore(self, memory: Memory, step: Step, noise: Tensor) -> Tensor:
        moves = torch.arange(UP, NUM_ACTIONS, device=noise.device)
        kept = ((moves == memory.last[:, None]) & (step.timestep > 0)[:, None]) * KEPT
        rest = 1 - kept.sum(dim=1, keepdim=True)
        return UP + draw_possible(kept + rest / len(moves), noise)


class CoveringPlan(Explorer):
    """Walks the k-th path of `covering_plan` in episode k, and starts over after the last. The room must have one start
    and actions that are not permuted.

    Before the goal is found, a policy learns only which cells are not the goal. So by the end of episode k it has found
    a goal only if k walks of H steps pass it, and these cover at most `coverage_bound` cells. If the plan covers as
    many by the end of every episode, and all goals are equally likely, no policy has a higher success in any episode of
    the terminating room (others may need fewer steps). If the plan covers less than the bound, nothing is claimed."""

    def __init__(self, env: DarkRoom) -> None:
        super().__init__(env)
        self._plan = torch.from_numpy(covering_plan(env.size, env.spec.max_episode_steps, int(env.starts[0])))

    def explore(self, memory: Memory, step: Step, noise: Tensor) -> Tensor:
        return self._plan.to(step.obs.device)[memory.episode % len(self._plan), step.timestep]


@cache
def covering_plan(size: int, horizon: int, start: int) -> Ints:
    """Actions `[K, H]` of K walks from `start` of at most `horizon` = H moves, each ended by staying, that cover all
    cells an episode can reach in a room of this `size`.

    It is the best plan of several beam searches with fixed seeds, judged by the cells covered by the end of the first
    episode, then of the second, and so on. The searches end when `coverage_bound` is met or effort is used up."""
    plans, effort = list[tuple[list[int], Ints]](), 0
    while len(plans) < _RESTARTS and effort < _EFFORT:
        plan = _Beam(size, horizon, start, np.random.default_rng(len(plans))).search()
        covered = cells_covered(plan, size, start)
        plans.append((covered, plan))
        if covered == [coverage_bound(size, horizon, start, number) for number in range(1, len(plan) + 1)]:
            break
        effort += plan.size * size**2
    return max(plans, key=lambda found: found[0])[1]  # all end with all cells: of two, the sooner has more


def cells_covered(plan: Ints, size: int, start: int) -> list[int]:
    """Number of cells beside `start` that a `plan` `[K, H]` has covered by the end of each episode."""
    after, cells = next_cells(size).view(-1, NUM_ACTIONS).numpy(), [np.full(len(plan), start)]
    for action in plan.T:
        cells.append(after[cells[-1], action])
    walks = np.stack(cells, axis=1)  # [K, H + 1]
    return [len(np.unique(walks[:number])) - 1 for number in range(1, len(plan) + 1)]


def coverage_bound(size: int, horizon: int, start: int, num_episodes: int) -> int:
    """Upper bound on the cells beside `start` that `num_episodes` = k walks of `horizon` = H moves can cover:

        min over r = 0 .. H of D(r) + k (H - r),    D(r): cells that are 1 to r moves away,

    because the first r moves of a walk lead no further. r = 0 gives k H, r = H the number of cells in reach."""
    within = np.bincount(_distances(np.array(start), size)).cumsum() - 1
    radius = np.arange(horizon + 1)
    return int((within[radius.clip(max=len(within) - 1)] + num_episodes * (horizon - radius)).min())


def _distances(cell: Ints, size: int) -> NDArray[np.int16]:
    """Moves from each `cell` `[...]` to all cells, `[..., S]`."""
    here, there = cell.astype(np.int16)[..., None], np.arange(size**2, dtype=np.int16)
    return np.abs(here // size - there // size) + np.abs(here % size - there % size)


class _Plans(NamedTuple):
    """Plans up to some step, the best first."""

    left: NDArray[np.bool_]  # [W, S + 1]: cells not covered yet; the last column is false and stands for walls
    cell: Ints  # [W]: position of the walk
    covered: Ints  # [W]: number of cells covered
    cost: NDArray[np.float64]  # [W]: cost of the position of the cells left
    name: Ints  # [W]: hash of the cells left


class _Beam:
    """Beam search for a plan. It keeps, of all continuations by one move, those that wasted the fewest steps, with the
    steps to the nearest cell left; among equal ones, those with the lowest cost of the cells left.

    A cell left costs more the fewer of its neighbours are left, because it may need a walk by itself. Covering a cell
    near the start costs too, because every later walk passes there. Both weights are drawn, and a noise breaks ties."""

    def __init__(self, size: int, horizon: int, start: int, rng: np.random.Generator) -> None:
        self._size, self._horizon, self._start, num_cells = size, horizon, start, size**2
        self._after = next_cells(size).view(-1, NUM_ACTIONS)[:, UP:].numpy()  # [S, 4]
        beyond = np.full((1, self._after.shape[1]), num_cells)
        stays = self._after == np.arange(num_cells)[:, None]
        self._neighbours = np.concatenate([np.where(stays, num_cells, self._after), beyond])  # [S + 1, 4]
        self._width = int(np.clip(_WIDTH_TIMES_CELLS // num_cells, *_WIDTHS))
        self._alone = np.arange(4, -1, -1) ** int(rng.integers(1, 4))  # cost of a cell left, by neighbours left
        self._away = _distances(np.array(start), size).astype(np.int64)
        self._near = rng.uniform(0, 6) / np.maximum(self._away, 1) ** 2  # cost of covering
        self._hash = rng.integers(1 << 62, size=num_cells)
        self._noise, self._rng = rng.uniform(0, 4), rng

    def search(self) -> Ints:
        zero, reached = np.zeros(1, np.int64), (self._away > 0) & (self._away <= self._horizon)
        plans = _Plans(np.append(reached, False)[None], zero, zero, np.zeros(1), zero)
        steps: list[tuple[Ints, Ints]] = []  # of each kept plan: number of the plan that it continues, and its move
        while plans.left[0].any():
            time = len(steps) % self._horizon
            if time == 0:
                plans = plans._replace(cell=np.full(len(plans.cell), self._start))
            plans, origin, move = self._continued(plans, self._horizon - time - 1)
            steps.append((origin, move))
        moves, kept = [STAY] * (-len(steps) % self._horizon), 0
        for origin, move in reversed(steps):
            moves.append(int(move[kept]))
            kept = origin[kept]
        return np.array(moves[::-1]).reshape(-1, self._horizon)

    def _continued(self, plans: _Plans, steps_left: int) -> tuple[_Plans, Ints, Ints]:
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
        stuck, walk = (~left.any(1)).nonzero()[0], np.zeros(len(cell))  # wasted steps to the nearest other cell left
        distance = np.where(plans.left[origin[stuck], :-1], _distances(cell[stuck], self._size), _NEVER)
        distance[np.arange(len(stuck)), cell[stuck]] = _NEVER
        nearest = distance.min(1)
        walk[stuck] = np.where(nearest < _NEVER, nearest - 1, 0)
        worth = _WASTED * (covered - walk.clip(max=steps_left)) - cost + self._noise * self._rng.random(len(cell))
        _, different = np.unique(name * NUM_ACTIONS + cell, return_index=True)
        kept = different[np.argsort(-worth[different], kind="stable")[: self._width]]
        after = plans.left[origin[kept]]
        after[np.arange(len(kept)), cell[kept]] = False
        return _Plans(after, cell[kept], covered[kept], cost[kept], name[kept]), origin[kept], move[kept] + UP
