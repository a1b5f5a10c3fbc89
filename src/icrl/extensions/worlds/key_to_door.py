"""Dark Key-to-Door, step-for-step equal to that of `toymeta` 0.0.1 if the key is not shown."""

from typing import Literal

import torch
from torch import Tensor

from icrl.config.options import option
from icrl.envs.core import NAME, Outcomes, State, certain, look_up, world
from icrl.envs.rooms import NUM_ACTIONS, Room, RoomConfig, first_move


class KeyToDoorConfig(RoomConfig):
    name: Literal["dark_key_to_door"] = option("dark_key_to_door", NAME)
    show_key: bool = option(True, "observations show whether the agent has the key; false: only the cell")


@world("dark_key_to_door", KeyToDoorConfig)
class DarkKeyToDoor(Room):
    """Find a key, then a door (Laskin et al., 2022).

    The agent gets 1, once an episode, on the key's cell, and 1 on the door's with the key, which ends the episode. A
    task is the cells of key and door, `[B, 2]`; a state index is has_key * size**2 + cell, and so is an observation if
    it shows the key."""

    goal_cell_name = "door"
    task_columns = goal_columns = ("key", "door")

    def __init__(self, config: KeyToDoorConfig) -> None:
        super().__init__(config, 1 + config.show_key, "goal")
        self.show_key = config.show_key

    @property
    def num_states(self) -> int:
        return 2 * self.num_cells

    def all_tasks(self) -> Tensor:
        """Every key and door that are not on the same cell."""
        pairs = torch.cartesian_prod(torch.arange(self.num_cells), torch.arange(self.num_cells))
        return pairs[pairs[:, 0] != pairs[:, 1]]

    def outcomes(self, task: Tensor, state_index: Tensor, action: Tensor) -> Outcomes:
        cell = look_up(self._next_cell, torch.add(action, state_index % self.num_cells, alpha=NUM_ACTIONS))
        had_key = state_index >= self.num_cells
        found_key = ~had_key & (cell == task[..., 0])
        opened = had_key & (cell == task[..., 1])
        state_index = cell + self.num_cells * (had_key | found_key)
        return certain(state_index, (found_key | opened).long(), opened)

    def observe(self, inner: Tensor) -> Tensor:
        return inner if self.show_key else inner % self.num_cells

    def optimal_action(self, state: State) -> Tensor:
        target = torch.where(state.inner < self.num_cells, state.task[..., 0], state.task[..., 1])
        return first_move(state.inner % self.num_cells, target, self.size)
