"""Searchers for rooms: policies that learn in context with a perfect memory of what their stream has shown.

They go to a cell where the goal may be, and take a shortest path once a reward has shown the goal. They plan no further
than one cell, so they leave cells behind that cost a detour later. With such a memory one can do better (see
`explorers.CoveringPlan`).

G goals to find one after the other in each episode, S cells, P permutations of the actions.
"""

from itertools import permutations
from typing import NamedTuple

import torch
from torch import Tensor

from icrl.contracts import Step
from icrl.envs.rooms import NUM_ACTIONS, STAY, DarkRoom, Room, first_move, next_cells


class Memory(NamedTuple):
    """Knowledge of a searcher about each stream."""

    candidate: Tensor  # [B, G, S] bool: the g-th goal may be here
    goal: Tensor  # [B, G] int64: cell of the g-th goal, -1 until it is known
    stage: Tensor  # [B] int64: number of the goal that is sought now


class RoomSearcher:
    """Searcher for rooms with G goals that are found one after the other: the goal of DarkRoom; a key, then a door.

    A cell is ruled out for the goal that is sought when a move ended there without reward, and for all other goals when
    one is found there. The first cell of an episode is not ruled out: it pays nothing then even if it is the goal.
    Before the key is found nothing is learned about the door. The noise breaks ties between nearest cells.

    If a move to a goal that was found brings no reward, the goal has moved. Then all that is known of that goal is
    forgotten, but for the cell where it is missed: it may be anywhere else. Where goals do not move this never
    happens."""

    forgets = True

    def __init__(self, env: Room) -> None:
        self._size, self._num_cells = env.size, env.size**2
        goals = env.all_tasks()[:, : len(env.goal_columns)]  # [tasks, G]
        self._possible = torch.zeros(goals.shape[1], self._num_cells, dtype=torch.bool)
        self._possible.scatter_(1, goals.T, value=True)

    def initial_carry(self, num_streams: int) -> Memory:
        goal = torch.full((num_streams, len(self._possible)), -1)
        return Memory(self._possible.repeat(num_streams, 1, 1), goal, torch.zeros(num_streams, dtype=torch.long))

    def act(self, carry: Memory, step: Step, noise: Tensor) -> tuple[Tensor, Memory]:
        memory = self.learned(carry, step)
        cell = step.obs % self._num_cells
        distance = self.distances(cell).masked_fill(~self.wanted(memory), self._num_cells)  # [B, S]
        nearest = distance == distance.amin(dim=1, keepdim=True)
        return first_move(cell, chosen(nearest, noise), self._size), memory

    def replace_action(self, carry: Memory, action: Tensor) -> Memory:
        return carry  # does not depend on the chosen action

    def learned(self, memory: Memory, step: Step) -> Memory:
        """Knowledge after `step`."""
        candidate, goal, stage = (column.to(step.obs.device) for column in memory)  # a fresh one is on the CPU
        landed, rewarded = (step.final_obs % self._num_cells)[:, None, None], step.reward > 0
        ended = step.terminated | step.truncated
        acted = (step.timestep > 0) | ended  # false before a stream's first action
        sought = torch.arange(candidate.shape[1], device=stage.device) == stage[:, None]  # [B, G]
        ruled_out = acted[:, None] & (sought | rewarded[:, None])
        here = torch.zeros_like(candidate).scatter_(2, landed.expand(-1, candidate.shape[1], 1), value=True)
        missed = acted[:, None] & ~rewarded[:, None] & sought & (goal == landed[..., 0])
        candidate = (candidate | (missed[..., None] & self._possible.to(goal.device))) & ~(here & ruled_out[..., None])
        goal = torch.where(sought & rewarded[:, None], landed[..., 0], goal.masked_fill(missed, -1))
        stage = (stage + rewarded).clamp(max=candidate.shape[1] - 1).masked_fill(ended, 0)
        return Memory(candidate, goal, stage)

    def wanted(self, memory: Memory) -> Tensor:
        """Cells to go to, `[B, S]` bool: the goal that is sought is there, or may be."""
        stream = torch.arange(len(memory.stage), device=memory.stage.device)
        goal = memory.goal[stream, memory.stage][:, None]
        known = torch.arange(self._num_cells, device=goal.device) == goal
        return torch.where(goal >= 0, known, memory.candidate[stream, memory.stage])

    def distances(self, cell: Tensor) -> Tensor:
        """Moves from each `cell` `[...]` to every cell, `[..., S]`."""
        cells, size = torch.arange(self._num_cells, device=cell.device), self._size
        return (cell[..., None] // size - cells // size).abs() + (cell[..., None] % size - cells % size).abs()


class PermutedMemory(NamedTuple):
    """Knowledge of a searcher where the actions are permuted."""

    memory: Memory
    consistent: Tensor  # [B, P] bool: permutations of the actions that explain all moves so far
    cell: Tensor  # [B] int64: where it acted last
    action: Tensor  # [B] int64: the last action


class PermutedSearcher:
    """Searcher for DarkRoom with permuted actions, which must also find out which action makes which of the five moves.

    All permutations that explain its moves so far are equally likely to it. It takes the action that most likely makes
    progress: the nearest cell where the goal may be is one move nearer after it, or at distance 0. The noise breaks
    ties. So it tries an unknown action only if no known one leads on."""

    def __init__(self, env: DarkRoom) -> None:
        self._searcher = RoomSearcher(env)
        self._next_cells = next_cells(env.size).view(-1, NUM_ACTIONS)  # [S, moves]
        self._moves = torch.tensor(list(permutations(range(NUM_ACTIONS))))  # [P, A]: the move of each action

    def initial_carry(self, num_streams: int) -> PermutedMemory:
        nothing = torch.zeros(num_streams, dtype=torch.long)
        consistent = torch.ones(num_streams, len(self._moves), dtype=torch.bool)
        return PermutedMemory(self._searcher.initial_carry(num_streams), consistent, nothing, nothing)

    def act(self, carry: PermutedMemory, step: Step, noise: Tensor) -> tuple[Tensor, PermutedMemory]:
        memory = self._searcher.learned(carry.memory, step)
        tensors = (self._next_cells, self._moves, *carry[1:])
        next_cells, moves, consistent, cell, action = (tensor.to(step.obs.device) for tensor in tensors)
        acted = (step.timestep > 0) | step.terminated | step.truncated
        explains = next_cells[cell] == step.final_obs[:, None]  # [B, moves]
        consistent = consistent & (explains.gather(1, moves[:, action].T) | ~acted[:, None])
        after, wanted = next_cells[step.obs], self._searcher.wanted(memory)[:, None]  # [B, moves], [B, 1, S]
        distance = self._searcher.distances(after).masked_fill(~wanted, len(next_cells)).amin(dim=2)
        progress = distance <= (distance[:, STAY] - 1).clamp(min=0)[:, None]
        each = moves.expand(len(noise), -1, -1)  # [B, P, A]
        likely = (progress.gather(1, each.flatten(1)).view_as(each) & consistent[..., None]).sum(dim=1)  # [B, A]
        action = chosen(likely == likely.amax(dim=1, keepdim=True), noise)
        return action, PermutedMemory(memory, consistent, step.obs, action)

    def replace_action(self, carry: PermutedMemory, action: Tensor) -> PermutedMemory:
        """The next move must be explained by the `action` `[B]` that was done."""
        return carry._replace(action=action)


class SampledMemory(NamedTuple):
    """Knowledge of a posterior sampler."""

    memory: Memory
    target: Tensor  # [B] int64: the cell it goes to


class PosteriorSampler:
    """Searcher for rooms that goes to a cell drawn uniformly from all where the goal may be: posterior sampling for a
    uniform prior over goals (Thompson, 1933). It draws anew in each episode, and once the goal cannot be there."""

    def __init__(self, env: Room) -> None:
        self._searcher, self._size = RoomSearcher(env), env.size

    def initial_carry(self, num_streams: int) -> SampledMemory:
        return SampledMemory(self._searcher.initial_carry(num_streams), torch.zeros(num_streams, dtype=torch.long))

    def act(self, carry: SampledMemory, step: Step, noise: Tensor) -> tuple[Tensor, SampledMemory]:
        memory, target = self._searcher.learned(carry.memory, step), carry.target.to(step.obs.device)
        wanted = self._searcher.wanted(memory)
        wanted = wanted | ~wanted.any(dim=1, keepdim=True)  # any cell if the goal is in none
        kept = wanted.gather(1, target[:, None])[:, 0] & (step.timestep > 0)
        target = torch.where(kept, target, chosen(wanted, noise))
        return first_move(step.obs % self._size**2, target, self._size), SampledMemory(memory, target)

    def replace_action(self, carry: SampledMemory, action: Tensor) -> SampledMemory:
        return carry  # does not depend on the chosen action


def chosen(allowed: Tensor, noise: Tensor) -> Tensor:
    """One of the true columns of each row of `allowed` `[B, N]`, all equally likely: `[B]` int64."""
    choice = (noise * allowed.sum(dim=1)).long()
    return (allowed.cumsum(dim=1) <= choice[:, None]).sum(dim=1)
