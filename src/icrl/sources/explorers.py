"""Explorers: policies for DarkRoom that look for the goal in a fixed way, and take a shortest path to it once found.

They stand beside the model as references. Their memory of the goal is perfect, and they remember nothing else.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from icrl.contracts import Step
from icrl.envs.rooms import NUM_ACTIONS, UP, DarkRoom, first_move
from icrl.randomness import draw_possible
from icrl.sources.covering_plan import covering_plan

KEPT = 0.5  # probability that a persistent walk keeps its direction


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
    the start of an episode. It does the same at walls, where a move leads nowhere, and never stays on purpose."""

    def explore(self, memory: Memory, step: Step, noise: Tensor) -> Tensor:
        moves = torch.arange(UP, NUM_ACTIONS, device=noise.device)
        kept = ((moves == memory.last[:, None]) & (step.timestep > 0)[:, None]) * KEPT
        rest = 1 - kept.sum(dim=1, keepdim=True)
        return UP + draw_possible(kept + rest / len(moves), noise)


class CoveringPlan(Explorer):
    """Walks the k-th path of `covering_plan` in episode k, and starts over after the last. The room must have one start
    and actions that are not permuted.

    Before the goal is found, a policy learns only which cells are not the goal. So by the end of episode k it has found
    a goal only if k walks of H steps pass it, and k walks cover at most `coverage_bound` cells. If the plan covers as
    many by the end of every episode, and all cells are equally likely to be the goal, no policy has a higher success in
    any episode of the terminating room: there it is the Bayes-optimal explorer as measured by success. Others may need
    fewer steps, or collect more in the classic room. If the plan covers less than the bound, nothing is claimed.
    """

    def __init__(self, env: DarkRoom) -> None:
        super().__init__(env)
        self._plan = torch.from_numpy(covering_plan(env.size, env.spec.max_episode_steps, int(env.starts[0])))

    def explore(self, memory: Memory, step: Step, noise: Tensor) -> Tensor:
        return self._plan.to(step.obs.device)[memory.episode % len(self._plan), step.timestep]
