"""DarkRoom: find a goal that is never shown.

A square room; the agent sees only its cell (row * size + column). Actions: 0 stay, 1 up, 2 right, 3 down, 4 left,
clipped at the walls. The reward is 1 if the agent stands on the goal after the move. In the terminating variant that
ends the episode; in the classic one (Laskin et al., 2022) the agent collects 1 at each step on the goal. Step-for-step
equal to `toymeta` 0.0.1.

With permuted actions a task is a goal and a permutation, and action a does what `permutation[a]` says, so the agent
has to find out what the actions mean.
"""

from itertools import permutations
from typing import Literal

import torch
from torch import Tensor

from icrl.config.options import option
from icrl.contracts import EnvSpec
from icrl.envs.core import Outcomes, State, certain
from icrl.envs.rooms import NUM_ACTIONS, Room, RoomConfig, first_move

_NAME = "rules of the world; the preset `env=` sets all of this group"


class DarkRoomConfig(RoomConfig):
    name: Literal["dark_room"] = option("dark_room", _NAME)
    terminate_on_goal: bool = option(True, "reaching the goal ends the episode")
    permute_actions: bool = option(False, "a task is a goal and a permutation of the five actions")


class DarkRoom(Room):
    """A task is the goal's cell, `[B, 1]`, or with permuted actions also the number of the permutation, `[B, 2]`."""

    goal_columns = ("goal",)

    def __init__(self, config: DarkRoomConfig) -> None:
        super().__init__(config)
        self.terminate_on_goal, self.permute_actions = config.terminate_on_goal, config.permute_actions
        success = "goal" if config.terminate_on_goal else "reward"
        self.spec = EnvSpec(self.num_cells, NUM_ACTIONS, (0.0, 1.0), self.size, config.max_episode_steps, success)
        self.task_columns = ("goal", "permutation") if config.permute_actions else ("goal",)
        self._meaning = torch.tensor(list(permutations(range(NUM_ACTIONS))))  # [permutations, actions]
        self._inverse = self._meaning.argsort(dim=1)

    def all_tasks(self) -> Tensor:
        """Every task `[num_tasks, task_dim]`. The common start of all episodes is no goal: it would be reached at
        once."""
        cells = torch.arange(self.num_cells)
        goals = cells if self.random_start else cells[cells != self.starts.cpu()]
        if not self.permute_actions:
            return goals[:, None]
        return torch.cartesian_prod(goals, torch.arange(len(self._meaning)))

    def outcomes(self, task: Tensor, state_index: Tensor, action: Tensor) -> Outcomes:
        if self.permute_actions:
            action = self._meaning[task[..., 1], action]
        state_index = self._next_cell[state_index * NUM_ACTIONS + action]
        on_goal = state_index == task[..., 0]
        return certain(state_index, on_goal.long(), on_goal if self.terminate_on_goal else torch.zeros_like(on_goal))

    def optimal_action(self, state: State) -> Tensor:
        move = first_move(state.state_index, state.task[..., 0], self.size)
        return self._inverse[state.task[..., 1], move] if self.permute_actions else move

    def label(self, task: Tensor) -> str:
        meaning = "".join(map(str, self._meaning[task[1]].tolist())) if self.permute_actions else ""
        return super().label(task) + (f"_actions_{meaning}" if meaning else "")

    def fingerprint(self, tasks: Tensor) -> list[str]:
        """Goal and permutation; a goal alone is the same task as with the identity."""
        identity = tasks.new_zeros(len(tasks), 1)
        return super().fingerprint(tasks if self.permute_actions else torch.cat([tasks, identity], dim=1))
