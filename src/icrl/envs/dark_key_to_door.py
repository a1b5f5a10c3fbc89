"""Dark Key-to-Door: find a key that is never shown, then a door (Laskin et al., 2022).

The room and its actions are those of DarkRoom. The agent gets 1, once an episode, on the key's cell, and 1 on the
door's with the key, which ends the episode. So an episode pays at most 2. The observation may show whether the agent
has the key (`env.show_key`): then it is has_key * size**2 + cell. If it does not, the world is step-for-step equal to
`toymeta` 0.0.1.
"""

from typing import Literal

import torch
from torch import Tensor

from icrl.config.options import option
from icrl.contracts import EnvSpec
from icrl.envs.core import Outcomes, State, certain
from icrl.envs.rooms import NUM_ACTIONS, Room, RoomConfig, first_move

_NAME = "rules of the world; the preset `env=` sets all of this group"


class KeyToDoorConfig(RoomConfig):
    name: Literal["dark_key_to_door"] = option("dark_key_to_door", _NAME)
    show_key: bool = option(True, "an observation tells whether the key is held; else only the cell")


class DarkKeyToDoor(Room):
    """A task is the cells of key and door, `[B, 2]`; a state index is has_key * size**2 + cell."""

    goal_cell_name = "door"
    task_columns = goal_columns = ("key", "door")

    def __init__(self, config: KeyToDoorConfig) -> None:
        super().__init__(config)
        self.show_key = config.show_key
        num_obs = self.num_states if config.show_key else self.num_cells
        self.spec = EnvSpec(num_obs, NUM_ACTIONS, (0.0, 1.0), self.size, config.max_episode_steps, "goal")

    @property
    def num_states(self) -> int:
        return 2 * self.num_cells

    def all_tasks(self) -> Tensor:
        """Every key and door that are not on the same cell."""
        pairs = torch.cartesian_prod(torch.arange(self.num_cells), torch.arange(self.num_cells))
        return pairs[pairs[:, 0] != pairs[:, 1]]

    def outcomes(self, task: Tensor, state_index: Tensor, action: Tensor) -> Outcomes:
        cell = self._next_cell[state_index % self.num_cells * NUM_ACTIONS + action]
        had_key = state_index >= self.num_cells
        found_key = ~had_key & (cell == task[..., 0])
        opened = had_key & (cell == task[..., 1])
        state_index = cell + self.num_cells * (had_key | found_key)
        return certain(state_index, (found_key | opened).long(), opened)

    def observe(self, state_index: Tensor) -> Tensor:
        return state_index if self.show_key else state_index % self.num_cells

    def optimal_action(self, state: State) -> Tensor:
        target = torch.where(state.state_index < self.num_cells, state.task[..., 0], state.task[..., 1])
        return first_move(state.state_index % self.num_cells, target, self.size)
