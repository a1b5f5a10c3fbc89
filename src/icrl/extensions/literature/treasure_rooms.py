"""Dark treasure rooms (Norman and Clune, 2023, "First-Explore, then exploit", arXiv 2307.02276): dark rooms with
objects that pay, or cost, once an episode. N tasks, B streams, K = 8 objects.
"""

from typing import Literal

import torch
from torch import Tensor

from icrl.config.options import option
from icrl.envs.core import NAME, EnvConfig, MapView, State, TensorEnv, look_up, world
from icrl.envs.rooms import NUM_ACTIONS, next_cells
from icrl.spaces import discrete_spec

SIDE, NUM_OBJECTS, NUM_ROOMS = 9, 8, 5000


class TreasureRoomConfig(EnvConfig):
    name: Literal["treasure_room"] = option("treasure_room", NAME)
    lowest: float = option(-4.0, "least value of an object", ge=-100, le=2)

    former = {"size": SIDE, "num_objects": NUM_OBJECTS, "num_tasks": NUM_ROOMS, "tasks_seed": 0}


@world("treasure_room", TreasureRoomConfig)
class TreasureRoom(TensorEnv):
    """The observation is the cell; the actions are those of `DarkRoom`, and episodes start in the centre. Each of K
    objects lies on a cell of its own draw, so that several may share one, and has a value ~ U(`lowest`, 2), which it
    pays the first time in an episode that the agent is on its cell after a move.

    A task is the number of the room, `[B, 1]`. Inner states are the cell plus the number of cells times the set of
    objects taken, as bits. Only the clock ends an episode, and no return counts as a success."""

    task_columns = ("room",)
    has_planner = False

    def __init__(self, config: TreasureRoomConfig) -> None:
        generator, shape = torch.Generator().manual_seed(0), (NUM_ROOMS, NUM_OBJECTS)
        self.num_cells = SIDE**2
        self.values = config.lowest + (2 - config.lowest) * torch.rand(shape, generator=generator)
        self.places = torch.randint(self.num_cells, shape, generator=generator)
        self.starts = torch.tensor([SIDE // 2 * (SIDE + 1)])
        self._next_cell, self._bits = next_cells(SIDE), torch.arange(NUM_OBJECTS)
        self.spec = discrete_spec(self.num_cells, NUM_ACTIONS, (), SIDE, config.max_episode_steps, "end")

    def all_tasks(self) -> Tensor:
        return torch.arange(len(self.values))[:, None]

    def observe(self, inner: Tensor) -> Tensor:
        return inner % self.num_cells

    def move(self, state: State, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        room, cell, taken = state.task[:, 0], state.inner % self.num_cells, state.inner // self.num_cells
        cell = look_up(self._next_cell, cell * NUM_ACTIONS + action)
        found = (self.places[room] == cell[:, None]) & (taken[:, None] >> self._bits & 1 == 0)  # [B, K]
        reward = (self.values[room] * found).sum(dim=1)
        taken = taken + (found.long() << self._bits).sum(dim=1)
        return taken * self.num_cells + cell, reward, torch.zeros_like(reward, dtype=torch.bool)

    def optimal_action(self, state: State) -> Tensor:
        return self.spec.unknown_action(state.timestep)

    def label(self, task: Tensor) -> str:
        return f"room_{int(task[0])}"

    def fingerprint(self, tasks: Tensor) -> list[str]:
        """Cells and values of the objects."""
        rooms = tasks[:, 0]
        return [str(both) for both in zip(self.places[rooms].tolist(), self.values[rooms].tolist(), strict=True)]

    def map_view(self, task: Tensor) -> MapView:
        """The room, with the cells of objects that pay marked."""
        good = self.places[task[0]][self.values[task[0]] > 0]
        return MapView(self.spec.width, self.spec.width, tuple(good.tolist()))
