"""Explorers: policies for DarkRoom that look for the goal in a fixed way, and take a shortest path to it once found.

They are references for the model, and their histories can teach it to search (`searcher`). They remember the goal
until they miss it there. One of them follows a covering plan: paths through a room, one per episode, that
visit all cells and waste few steps.

S cells, H steps per episode, K paths. The search keeps W unfinished plans, which have C continuations.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from icrl.contracts import Step
from icrl.envs.rooms import NUM_ACTIONS, STAY, UP, DarkRoom, first_move, next_cells
from icrl.randomness import draw_possible

_RESTARTS = 12  # most searches, each with weights and random numbers of its own
_EFFORT = 1 << 19  # no search starts after so many steps of plans times cells of the room
_WIDTHS = (8, 64)  # least and most plans that are kept at a time
_WIDTH_TIMES_CELLS = 1 << 14  # between these
_WASTED = 1e4  # cost of a wasted step, above the cost of any position of the cells left
_NEVER = np.int16(2**15 - 1)  # distance to a cell that is not there

Ints = NDArray[np.int64]


class Memory(NamedTuple):
    """Carry of an explorer."""

    goal: Tensor  # [B] int64: cell of the goal, -1 until a reward shows it, and again if a move there brings none
    last: Tensor  # [B] int64: last exploring action
    episode: Tensor  # [B] int64: episodes finished since the start, or since the one in which a goal was missed


def has_explorers(env: DarkRoom) -> bool:
    """True for rooms with one start and actions that are not permuted."""
    return not (env.random_start or env.permute_actions)


class Explorer:
    """Base of explorers; a subclass gives `explore`."""

    forgets = True

    def __init__(self, env: DarkRoom) -> None:
        self._size = env.size

    def initial_carry(self, num_streams: int) -> Memory:
        zero = torch.zeros(num_streams, dtype=torch.long)
        return Memory(zero - 1, zero, zero)

    def act(self, carry: Memory, step: Step, noise: Tensor) -> tuple[Tensor, Memory]:
        memory = self._learned(carry, step)
        action = self.explore(memory, step, noise)
        action = torch.where(memory.goal < 0, action, first_move(step.obs, memory.goal.clamp(min=0), self._size))
        return action, memory._replace(last=action)

    def replace_action(self, carry: Memory, action: Tensor) -> Memory:
        """The last action is the one that was done, `[B]`."""
        return carry._replace(last=action)

    def _learned(self, memory: Memory, step: Step) -> Memory:
        """Knowledge after `step`."""
        goal, last, episode = (column.to(step.obs.device) for column in memory)
        landed, rewarded, ended = step.final_obs, step.reward > 0, step.terminated | step.truncated
        acted = (step.timestep > 0) | ended  # false on the first cell of a stream
        missed = acted & (landed == goal) & ~rewarded
        goal = torch.where(rewarded, landed, goal.masked_fill(missed, -1))
        return Memory(goal, last, episode.masked_fill(missed, 0) + ended)

    def explore(self, memory: Memory, step: Step, noise: Tensor) -> Tensor:
        """Actions `[B]` while the goal is unknown."""
        raise NotImplementedError


class UniformWalk(Explorer):
    """Takes each of the five actions with the same probability."""

    def explore(self, memory: Memory, step: Step, noise: Tensor) -> Tensor:
        return (noise * NUM_ACTIONS).long()


class PersistentWalk(Explorer):
    """Repeats its last move with probability 1/2, else takes one of the four moves with the same probability, also at
    walls. The first move of an episode is uniform over the four. It never stays on purpose."""

    turns = (5 / 8, 1 / 8, 1 / 8, 1 / 8)  # probability of the last move turned clockwise by k quarters

    def explore(self, memory: Memory, step: Step, noise: Tensor) -> Tensor:
        moves = torch.arange(UP, NUM_ACTIONS, device=noise.device)  # clockwise
        begins = (step.timestep == 0) | (memory.last == STAY)
        turned = torch.tensor(self.turns, device=noise.device)[(moves - memory.last[:, None]) % len(moves)]
        return UP + draw_possible(turned.masked_fill(begins[:, None], 1 / len(moves)), noise)


class TurningWalk(PersistentWalk):
    """Persistent walk that never turns back: it repeats its last move with probability 5/8, else turns right or left.

    In rooms of 9 x 9 and 11 x 11, no other multiple of 1/16 gives a higher mean success in episodes 31 to 40."""

    turns = (5 / 8, 3 / 16, 0.0, 3 / 16)


class CoveringPlan(Explorer):
    """Walks the k-th path of `covering_plan` in episode k, and starts over after the last. Pushed off its path, it goes
    to the first cell of it that can be reached in time. The room must have one start and actions that are not permuted.

    Before the goal is found, a policy learns only which cells are not the goal. So by the end of episode k it has found
    a goal only if k walks of H steps pass it, and these cover at most `coverage_bound` cells. If the plan covers as
    many by the end of every episode, and all goals are equally likely, no policy has a higher success in any episode of
    the terminating room (others may need fewer steps). If the plan covers less than the bound, nothing is claimed."""

    def __init__(self, env: DarkRoom) -> None:
        super().__init__(env)
        start = int(env.starts[0])
        plan = covering_plan(env.size, env.spec.max_episode_steps, start)
        self._walks = torch.from_numpy(cells_walked(plan, env.size, start))  # [K, H + 1]

    def explore(self, memory: Memory, step: Step, noise: Tensor) -> Tensor:
        walk, size = self._walks.to(step.obs.device)[memory.episode % len(self._walks)], self._size  # [B, H + 1]
        here = step.obs[:, None]
        distance = (walk // size - here // size).abs() + (walk % size - here % size).abs()
        steps_left = torch.arange(walk.shape[1], device=walk.device) - step.timestep[:, None]  # until the walk is there
        late = (steps_left < 1) | (distance > steps_left)
        late[:, -1] = False  # off the last cell too
        return first_move(step.obs, walk.gather(1, late.long().argmin(1, keepdim=True))[:, 0], size)


@cache
def covering_plan(size: int, horizon: int, start: int) -> Ints:
    """Actions `[K, H]` of K walks from `start` of at most `horizon` = H moves, each ended by staying, that cover all
    cells an episode can reach in a room of this `size`.

    It is the best plan of several beam searches with fixed seeds, judged by the cells covered by the end of the first
    episode, then of the second, and so on. The searches end when `coverage_bound` is met or effort is used up."""
    plans, effort = list[tuple[list[int], Ints]](), 0
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
    walks = cells_walked(plan, size, start)
    return [len(np.unique(walks[:number])) - 1 for number in range(1, len(plan) + 1)]


def cells_walked(plan: Ints, size: int, start: int) -> Ints:
    """Cells of the walks of a `plan` `[K, H]`, from `start` on, `[K, H + 1]`."""
    after, cells = next_cells(size).view(-1, NUM_ACTIONS).numpy(), [np.full(len(plan), start)]
    for action in plan.T:
        cells.append(after[cells[-1], action])
    return np.stack(cells, axis=1)


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


def _search(size: int, horizon: int, start: int, rng: np.random.Generator) -> Ints:
    """Plan found by a beam search. It keeps, of all continuations by one move, those that wasted the fewest steps, with
    the steps to the nearest cell left; among equal ones, those with the lowest cost of the cells left.

    A cell left costs more the fewer of its neighbours are left, because it may need a walk by itself. Covering a cell
    near the start costs too, because every later walk passes there. Both weights are drawn, and a noise breaks ties."""
    num_cells, steps = size**2, list[tuple[Ints, Ints]]()  # of each kept plan: the plan that it continues, and its move
    after = next_cells(size).view(-1, NUM_ACTIONS)[:, UP:].numpy()  # [S, 4]
    around = np.where(after == np.arange(num_cells)[:, None], num_cells, after)
    around = np.append(around, np.full((1, 4), num_cells), axis=0)  # [S + 1, 4]: neighbours; S stands for walls
    width = int(np.clip(_WIDTH_TIMES_CELLS // num_cells, *_WIDTHS))
    alone = np.arange(4, -1, -1) ** int(rng.integers(1, 4))  # cost of a cell left, by neighbours left
    away = _distances(np.array(start), size).astype(np.int64)
    near = rng.uniform(0, 6) / np.maximum(away, 1) ** 2  # cost of covering
    hashes, noise = rng.integers(1 << 62, size=num_cells), rng.uniform(0, 4)
    left = np.append((away > 0) & (away <= horizon), False)[None]  # [W, S + 1]: cells not covered yet, best plan first
    cell, covered, cost, name = np.zeros(1, int), np.zeros(1, int), np.zeros(1), np.zeros(1, int)  # name: hash of left
    while left[0].any():
        steps_left = horizon - len(steps) % horizon - 1  # of the episode, after this step
        cell = np.full(len(cell), start) if steps_left == horizon - 1 else cell
        origin, move = (after[cell] != cell[:, None]).nonzero()
        cell = after[cell[origin], move]  # [C]
        new, beside = left[origin, cell], left[origin[:, None], around[cell]]  # [C], [C, 4]: neighbours left
        theirs = left[origin[:, None, None], around[around[cell]]].sum(2)  # and their own neighbours left
        lonelier = (beside * (alone[(theirs - 1).clip(min=0)] - alone[theirs])).sum(1)
        cost = cost[origin] + new * (lonelier - alone[beside.sum(1)] + near[cell])
        covered, name = covered[origin] + new, name[origin] ^ (new * hashes[cell])
        stuck, walk = (~beside.any(1)).nonzero()[0], np.zeros(len(cell))  # wasted steps to the nearest other cell left
        distance = np.where(left[origin[stuck], :-1], _distances(cell[stuck], size), _NEVER)
        distance[np.arange(len(stuck)), cell[stuck]] = _NEVER
        nearest = distance.min(1)
        walk[stuck] = np.where(nearest < _NEVER, nearest - 1, 0)
        worth = _WASTED * (covered - walk.clip(max=steps_left)) - cost + noise * rng.random(len(cell))
        _, different = np.unique(name * NUM_ACTIONS + cell, return_index=True)
        kept = different[np.argsort(-worth[different], kind="stable")[:width]]
        left, cell, covered, cost, name = left[origin[kept]], cell[kept], covered[kept], cost[kept], name[kept]
        left[np.arange(len(kept)), cell] = False
        steps.append((origin[kept], move[kept] + UP))
    moves, best = [STAY] * (-len(steps) % horizon), 0
    for origin, move in reversed(steps):
        moves.append(int(move[best]))
        best = origin[best]
    return np.array(moves[::-1]).reshape(-1, horizon)
