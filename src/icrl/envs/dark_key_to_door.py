"""Dark Key-to-Door: find a key nobody shows you, then a door (Laskin et al., 2022).

The room, its actions and what is seen are those of DarkRoom. Standing on the key's cell after a move pays 1 once an
episode; standing on the door's with the key pays 1 and ends it. So an episode pays at most 2. Whether the key is held
can be shown: then an observation is has_key * size**2 + cell. Where it is hidden: step-for-step equal to `toymeta`
0.0.1.
"""

import torch
from torch import Tensor

from icrl.config.env_schema import KeyToDoorConfig
from icrl.contracts import EnvSpec
from icrl.envs.core import MapView, Outcomes, State, TensorEnv, certain
from icrl.envs.rooms import NUM_ACTIONS, centre_of, first_move, next_cells


class DarkKeyToDoor(TensorEnv):
    """A task is the cells of key and door, `[B, 2]`; a state index is has_key * size**2 + cell."""

    goal_cell_name = "door"
    task_columns = ("key", "door")

    def __init__(self, config: KeyToDoorConfig) -> None:
        self.size, self.num_cells = config.size, config.size**2
        self.show_key = config.show_key
        num_obs = self.num_states if config.show_key else self.num_cells
        self.spec = EnvSpec(num_obs, NUM_ACTIONS, (0.0, 1.0), self.size, config.max_episode_steps, "goal")
        self.starts = torch.arange(self.num_cells) if config.random_start else centre_of(self.size)
        self._next_cell = next_cells(self.size)

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
        """A shortest path to the key, or with it to the door."""
        target = torch.where(state.state_index < self.num_cells, state.task[..., 0], state.task[..., 1])
        return first_move(state.state_index % self.num_cells, target, self.size)

    def label(self, task: Tensor) -> str:
        key, door = (divmod(cell, self.size) for cell in task.tolist())
        return f"key_{key[0]}_{key[1]}_door_{door[0]}_{door[1]}"

    def map_view(self, task: Tensor) -> MapView:
        key, door = task.tolist()
        return MapView(self.size, self.size, (key, door))

    def goal_cell(self, tasks: Tensor) -> Tensor:
        """The doors."""
        return tasks[:, 1]
