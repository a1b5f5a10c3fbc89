"""Posterior sampling in rooms."""

from typing import NamedTuple

import torch
from torch import Tensor

from icrl.contracts import Step
from icrl.envs.rooms import Room, first_move
from icrl.extensions.searchers.rooms import Memory, RoomSearcher, chosen


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
