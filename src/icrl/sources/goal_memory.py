"""Policies for DarkRoom that look for the goal somehow, and go straight to it once a reward showed where it is.

B streams.
"""

import torch
from torch import Tensor

from icrl.contracts import Step
from icrl.envs.dark_room import DarkRoom
from icrl.envs.rooms import NUM_ACTIONS, UP, first_move
from icrl.randomness import draw_possible

KEPT = 0.5  # probability that a persistent walk goes on in its direction

Found = Tensor  # [B] int64: the goal's cell, -1 until a reward showed it


class GoalMemory:
    """The perfect memory of the goal, and nothing else."""

    def __init__(self, env: DarkRoom) -> None:
        self._size = env.size

    def nothing_found(self, num_streams: int) -> Found:
        return torch.full((num_streams,), -1)

    def learned(self, found: Found, step: Step) -> Found:
        """What is known after `step`."""
        return torch.where(step.reward > 0, step.final_obs, found.to(step.obs.device))

    def to_goal(self, found: Found, step: Step, searching: Tensor) -> Tensor:
        """The first action of a shortest path to the goal, where it is known, else what `searching` `[B]` says."""
        return torch.where(found < 0, searching, first_move(step.obs, found, self._size))


class UniformWalk(GoalMemory):
    """Until it finds the goal, each of the five actions with the same probability."""

    def initial_carry(self, num_streams: int) -> Found:
        return self.nothing_found(num_streams)

    def act(self, carry: Found, step: Step, noise: Tensor) -> tuple[Tensor, Found]:
        found = self.learned(carry, step)
        return self.to_goal(found, step, (noise * NUM_ACTIONS).long()), found


class PersistentWalk(GoalMemory):
    """Until it finds the goal, the move of the step before with probability 1/2, else one of the four moves, each with
    the same probability; of these, too, the first of an episode. It never stays on purpose, and at a wall does what it
    does elsewhere: a move into the wall leads nowhere, and may be repeated."""

    def initial_carry(self, num_streams: int) -> tuple[Found, Tensor]:
        """Nothing is found, and nothing was done, `[B]` each."""
        return self.nothing_found(num_streams), torch.zeros(num_streams, dtype=torch.long)

    def act(self, carry: tuple[Found, Tensor], step: Step, noise: Tensor) -> tuple[Tensor, tuple[Found, Tensor]]:
        found = self.learned(carry[0], step)
        moves = torch.arange(UP, NUM_ACTIONS, device=noise.device)
        kept = ((moves == carry[1].to(noise.device)[:, None]) & (step.timestep > 0)[:, None]) * KEPT
        rest = 1 - kept.sum(dim=1, keepdim=True)
        action = UP + draw_possible(kept + rest / len(moves), noise)
        return self.to_goal(found, step, action), (found, action)
