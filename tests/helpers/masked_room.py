"""A room that says which actions are legal: all but those into a wall."""

import torch
from gymnasium.spaces import Discrete
from torch import Tensor

from icrl.envs.rooms import NUM_ACTIONS, DarkRoom, DarkRoomConfig
from icrl.spaces import EnvSpec, with_flags


class MaskedRoom(DarkRoom):
    """Observations are the cell and a flag for each action."""

    def __init__(self, size: int, max_episode_steps: int) -> None:
        super().__init__(DarkRoomConfig(size=size, max_episode_steps=max_episode_steps, random_start=True))
        obs = with_flags(Discrete(self.num_cells), NUM_ACTIONS)
        about = (self.spec.reward_values, 0, max_episode_steps, self.spec.success)
        self.spec = EnvSpec(obs, self.spec.action_space, *about, action_mask=True)

    def observe(self, inner: Tensor) -> Tensor:
        after = self._next_cell[inner[:, None] * NUM_ACTIONS + torch.arange(NUM_ACTIONS)]
        legal = (after != inner[:, None]) | (torch.arange(NUM_ACTIONS) == 0)
        return torch.cat([inner[:, None], legal.long()], dim=1)
