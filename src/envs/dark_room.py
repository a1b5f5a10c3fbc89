"""DarkRoom: find a goal nobody shows you.

A square room; the agent sees only the cell it stands on (row * size + column). Actions: 0 stay, 1 up, 2 right, 3 down,
4 left, clipped at the walls. Reward 1 when it stands on the goal after the move. In the terminating variant that ends
the episode; in the classic one (Laskin et al., 2022) the agent goes on and collects 1 at each step on the goal.
Step-for-step equal to `toymeta` 0.0.1.
"""

import torch
from torch import Tensor

from src.contracts import EnvSpec
from src.envs.base import State, TensorEnv
from src.randomness import integers
from src.schema import EnvConfig

NUM_ACTIONS = 5
STAY, UP, RIGHT, DOWN, LEFT = range(NUM_ACTIONS)


class DarkRoom(TensorEnv):
    """A task is the goal's cell, `[B, 1]`."""

    def __init__(self, config: EnvConfig) -> None:
        self.size = config.size
        self.random_start = config.random_start
        self.terminate_on_goal = config.terminate_on_goal
        num_cells = self.size**2
        self.spec = EnvSpec(num_cells, NUM_ACTIONS, 2, self.size, config.max_episode_steps)
        cells = torch.arange(num_cells)
        row, column = cells // self.size, cells % self.size
        last = self.size - 1
        self._centre = torch.tensor((self.size // 2) * self.size + self.size // 2)
        moved = [
            (row, column),
            ((row - 1).clamp(min=0), column),
            (row, (column + 1).clamp(max=last)),
            ((row + 1).clamp(max=last), column),
            (row, (column - 1).clamp(min=0)),
        ]
        self._next_cell = torch.stack([r * self.size + c for r, c in moved], dim=1).flatten()  # [cell * actions]

    @property
    def fixed_start(self) -> int | None:
        """The cell every episode starts on; None where starts vary."""
        return None if self.random_start else int(self._centre)

    def all_tasks(self) -> Tensor:
        """Every goal `[num_tasks, 1]`; the cell all episodes start on would be won at once and is no task."""
        cells = torch.arange(self.spec.num_obs)
        return (cells if self.random_start else cells[cells != self._centre.cpu()])[:, None]

    def start(self, task: Tensor, seed: Tensor, episode: Tensor) -> Tensor:
        return integers(seed, episode, self.spec.num_obs) if self.random_start else self._centre.expand_as(seed)

    def move(self, task: Tensor, place: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        place = self._next_cell[place * NUM_ACTIONS + action]
        on_goal = place == task[..., 0]
        return place, on_goal.long(), on_goal if self.terminate_on_goal else torch.zeros_like(on_goal)

    def observe(self, place: Tensor) -> Tensor:
        return place

    def optimal_action(self, state: State) -> Tensor:
        """Rows first, then columns, then stay: a shortest path to the goal, for states of any leading shape."""
        goal = state.task[..., 0]
        rows = goal // self.size - state.place // self.size
        columns = goal % self.size - state.place % self.size
        vertical = torch.where(rows < 0, UP, DOWN)
        horizontal = torch.where(columns < 0, LEFT, torch.where(columns > 0, RIGHT, STAY))
        return torch.where(rows != 0, vertical, horizontal)
