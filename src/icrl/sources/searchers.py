"""Searchers: the nearest cell first, with a perfect memory, in rooms with something hidden, in context.

A searcher knows the rules and the room; of its task it knows what its stream has shown it, over all episodes. It goes
to the nearest cell where what it seeks may be, until a reward shows where it is, and takes a shortest path there ever
after. That forgets nothing but plans no further than one cell: it leaves cells behind that cost it a detour later, and
is not the best that can be done with such a memory (see `covering_plan`).

B streams, S cells, G things to find one after the other in each episode, A actions, P permutations of the actions.
"""

from itertools import permutations
from typing import NamedTuple

import torch
from torch import Tensor

from icrl.contracts import Step
from icrl.envs.dark_key_to_door import DarkKeyToDoor
from icrl.envs.dark_room import DarkRoom
from icrl.envs.rooms import NUM_ACTIONS, STAY, first_move, next_cells


class Memory(NamedTuple):
    """What a searcher knows of each stream."""

    candidate: Tensor  # [B, G, S] bool: may still be where the g-th thing is
    found: Tensor  # [B, G] int64: where it is, -1 until found
    stage: Tensor  # [B] int64: which thing is sought now


class Searcher:
    """For DarkRoom, where the goal is sought (G = 1), and Dark Key-to-Door, where the key is and then the door (G = 2).

    A cell is ruled out for what is sought when a move ended there without reward, and for all other things when
    something is found there. The cell an episode starts on is not ruled out: it pays nothing then even if it is the
    goal. While it holds no key, a searcher learns nothing of the door. That it holds the key it knows from the reward.
    Ties between nearest cells are broken by the noise.
    """

    def __init__(self, env: DarkRoom | DarkKeyToDoor) -> None:
        self._size, self._num_cells = env.size, env.size**2
        goals = env.all_tasks()[:, :1] if isinstance(env, DarkRoom) else env.all_tasks()  # [tasks, G]
        self._possible = torch.zeros(goals.shape[1], self._num_cells, dtype=torch.bool)
        for possible, cells in zip(self._possible, goals.T, strict=True):
            possible[cells] = True

    def initial_carry(self, num_streams: int) -> Memory:
        num_things = len(self._possible)
        found = torch.full((num_streams, num_things), -1)
        return Memory(self._possible.repeat(num_streams, 1, 1), found, torch.zeros(num_streams, dtype=torch.long))

    def act(self, carry: Memory, step: Step, noise: Tensor) -> tuple[Tensor, Memory]:
        memory = self.learned(carry, step)
        cell = step.obs % self._num_cells
        distance = self.distances(cell).masked_fill(~self.wanted(memory), self._num_cells)  # [B, S]
        nearest = distance == distance.amin(dim=1, keepdim=True)
        return first_move(cell, chosen(nearest, noise), self._size), memory

    def did(self, carry: Memory, action: Tensor) -> Memory:
        """What it learns does not depend on what it chose."""
        return carry

    def learned(self, memory: Memory, step: Step) -> Memory:
        """What is known after `step`."""
        candidate, found, stage = (column.to(step.obs.device) for column in memory)  # a fresh one is on the CPU
        landed, rewarded = (step.final_obs % self._num_cells)[:, None, None], step.reward > 0
        ended = step.terminated | step.truncated
        acted = (step.timestep > 0) | ended  # false before a stream's first action
        sought = torch.arange(candidate.shape[1], device=stage.device) == stage[:, None]  # [B, G]
        ruled_out = acted[:, None] & (sought | rewarded[:, None])
        here = torch.zeros_like(candidate).scatter_(2, landed.expand(-1, candidate.shape[1], 1), value=True)
        candidate = candidate & ~(here & ruled_out[..., None])
        found = torch.where(sought & rewarded[:, None], landed[..., 0], found)
        stage = (stage + rewarded).clamp(max=candidate.shape[1] - 1).masked_fill(ended, 0)
        return Memory(candidate, found, stage)

    def wanted(self, memory: Memory) -> Tensor:
        """The cells to go to, `[B, S]` bool: where what is sought is, or may be."""
        now = memory.stage[:, None]
        found = memory.found.gather(1, now)  # [B, 1]
        candidate = memory.candidate.gather(1, now[..., None].expand(-1, -1, self._num_cells))[:, 0]
        known = torch.arange(self._num_cells, device=found.device) == found
        return torch.where(found >= 0, known, candidate)

    def distances(self, cell: Tensor) -> Tensor:
        """Moves from each `cell` `[...]` to every cell, `[..., S]`."""
        cells, size = torch.arange(self._num_cells, device=cell.device), self._size
        return (cell[..., None] // size - cells // size).abs() + (cell[..., None] % size - cells % size).abs()


class PermutedMemory(NamedTuple):
    """What the searcher knows where the actions are permuted."""

    memory: Memory
    consistent: Tensor  # [B, P] bool: permutations of the actions that explain all moves so far
    cell: Tensor  # [B] int64: where it acted last
    action: Tensor  # [B] int64: what it did there


class PermutedSearcher:
    """For DarkRoom with permuted actions: it knows the room's geometry and that the five actions do the five moves, and
    must find out which does which beside finding the goal.

    It keeps the set of permutations that explain all its moves, all equally likely to it. A move is progress if the
    nearest cell where the goal may be is one move nearer after it, or at distance 0. It does what is most likely
    progress, ties broken by the noise: so it tries actions it does not know, and learns what they do, only where none
    that it knows leads on. Each try is progress or rules out permutations.
    """

    def __init__(self, env: DarkRoom) -> None:
        self._searcher = Searcher(env)
        self._next_cells = next_cells(env.size).view(-1, NUM_ACTIONS)  # [S, moves]
        self._does = torch.tensor(list(permutations(range(NUM_ACTIONS))))  # [P, A]

    def initial_carry(self, num_streams: int) -> PermutedMemory:
        nothing = torch.zeros(num_streams, dtype=torch.long)
        consistent = torch.ones(num_streams, len(self._does), dtype=torch.bool)
        return PermutedMemory(self._searcher.initial_carry(num_streams), consistent, nothing, nothing)

    def act(self, carry: PermutedMemory, step: Step, noise: Tensor) -> tuple[Tensor, PermutedMemory]:
        memory = self._searcher.learned(carry.memory, step)
        consistent = self._consistent(carry, step)
        after = self._next_cells.to(step.obs.device)[step.obs]  # [B, moves]
        wanted = self._searcher.wanted(memory)[:, None]
        distance = self._searcher.distances(after).masked_fill(~wanted, len(self._next_cells)).amin(dim=2)
        progress = distance <= (distance[:, STAY] - 1).clamp(min=0)[:, None]
        does = self._does.to(step.obs.device).expand(len(noise), -1, -1)  # [B, P, A]
        leads_on = progress.gather(1, does.flatten(1)).view_as(does) & consistent[..., None]
        likely = leads_on.sum(dim=1)  # [B, A], out of as many permutations as there are left
        action = chosen(likely == likely.amax(dim=1, keepdim=True), noise)
        return action, PermutedMemory(memory, consistent, step.obs, action)

    def did(self, carry: PermutedMemory, action: Tensor) -> PermutedMemory:
        """Moves are explained by the `action` `[B]` that was done."""
        return carry._replace(action=action)

    def _consistent(self, carry: PermutedMemory, step: Step) -> Tensor:
        """The permutations `[B, P]` that explain `step` too."""
        consistent, cell, action = (column.to(step.obs.device) for column in carry[1:])
        acted = (step.timestep > 0) | step.terminated | step.truncated
        explains = self._next_cells.to(cell.device)[cell] == step.final_obs[:, None]  # [B, moves]
        by_permutation = explains.gather(1, self._does.to(cell.device)[:, action].T)  # [B, P]
        return consistent & (by_permutation | ~acted[:, None])


def chosen(allowed: Tensor, noise: Tensor) -> Tensor:
    """One of the true columns of each row of `allowed` `[B, N]`, all equally likely: `[B]` int64."""
    choice = (noise * allowed.sum(dim=1)).long()
    return (allowed.cumsum(dim=1) <= choice[:, None]).sum(dim=1)
