"""DarkRoom: find a goal nobody shows you.

A square room; the agent sees only the cell it stands on (row * size + column). Actions: 0 stay, 1 up, 2 right, 3 down,
4 left, clipped at the walls. Reward 1 when it stands on the goal after the move. In the terminating variant that ends
the episode; in the classic one (Laskin et al., 2022) the agent goes on and collects 1 at each step on the goal.
Step-for-step equal to `toymeta` 0.0.1.

With permuted actions a task is a goal and a permutation, and action a does what `permutation[a]` says: what the actions
mean has to be found out too.
"""

from itertools import permutations

import torch
from torch import Tensor

from icrl.config.env_schema import DarkRoomConfig
from icrl.contracts import EnvSpec
from icrl.envs.core import MapView, Outcomes, State, TensorEnv, certain
from icrl.envs.rooms import NUM_ACTIONS, centre_of, first_move, next_cells


class DarkRoom(TensorEnv):
    """A task is the goal's cell, `[B, 1]`, or with permuted actions also the number of the permutation, `[B, 2]`."""

    def __init__(self, config: DarkRoomConfig) -> None:
        self.size = config.size
        self.terminate_on_goal = config.terminate_on_goal
        self.permute_actions = config.permute_actions
        self.random_start = config.random_start
        success = "goal" if config.terminate_on_goal else "reward"
        self.spec = EnvSpec(self.size**2, NUM_ACTIONS, (0.0, 1.0), self.size, config.max_episode_steps, success)
        self.starts = torch.arange(self.size**2) if config.random_start else centre_of(self.size)
        self.task_columns = ("goal", "permutation") if config.permute_actions else ("goal",)
        self._next_cell = next_cells(self.size)
        self._does = torch.tensor(list(permutations(range(NUM_ACTIONS))))  # [permutations, actions]
        self._how_to = self._does.argsort(dim=1)

    def all_tasks(self) -> Tensor:
        """Every task `[num_tasks, task_dim]`; the cell all episodes start on would be won at once and is no goal."""
        cells = torch.arange(self.spec.num_obs)
        goals = cells if self.random_start else cells[cells != self.starts.cpu()]
        if not self.permute_actions:
            return goals[:, None]
        return torch.cartesian_prod(goals, torch.arange(len(self._does)))

    def outcomes(self, task: Tensor, state_index: Tensor, action: Tensor) -> Outcomes:
        if self.permute_actions:
            action = self._does[task[..., 1], action]
        state_index = self._next_cell[state_index * NUM_ACTIONS + action]
        on_goal = state_index == task[..., 0]
        return certain(state_index, on_goal.long(), on_goal if self.terminate_on_goal else torch.zeros_like(on_goal))

    def optimal_action(self, state: State) -> Tensor:
        """A shortest path to the goal, for states of any leading shape."""
        move = first_move(state.state_index, state.task[..., 0], self.size)
        return self._how_to[state.task[..., 1], move] if self.permute_actions else move

    def label(self, task: Tensor) -> str:
        row, column = divmod(int(task[0]), self.size)
        does = "".join(map(str, self._does[task[1]].tolist())) if self.permute_actions else ""
        return f"goal_{row}_{column}" + (f"_actions_{does}" if does else "")

    def fingerprint(self, tasks: Tensor) -> list[str]:
        """A goal is the task whose actions are not permuted."""
        in_order = tasks.new_zeros(len(tasks), 1)
        return super().fingerprint(tasks if self.permute_actions else torch.cat([tasks, in_order], dim=1))

    def map_view(self, task: Tensor) -> MapView:
        return MapView(self.size, self.size, (int(task[0]),))

    def goal_cell(self, tasks: Tensor) -> Tensor:
        """The goals."""
        return tasks[:, 0]
