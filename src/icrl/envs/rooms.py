"""Square rooms: their cells, their moves and shortest paths."""

import torch
from torch import Tensor

from icrl.config.options import option
from icrl.envs.core import EnvConfig, MapView, TensorEnv


class RoomConfig(EnvConfig):
    size: int = option(9, "side of the room in cells", ge=2, le=64)
    random_start: bool = option(False, "start each episode on a random cell instead of the centre")


NUM_ACTIONS = 5
STAY, UP, RIGHT, DOWN, LEFT = range(NUM_ACTIONS)


class Room(TensorEnv):
    """World in a square room with cells row * size + column. Episodes start in the centre or anywhere."""

    goal_columns: tuple[str, ...]  # the first columns of a task: the cells to reach, in this order

    def __init__(self, config: RoomConfig) -> None:
        self.size, self.num_cells, self.random_start = config.size, config.size**2, config.random_start
        centre = (self.size // 2) * self.size + self.size // 2
        self.starts = torch.arange(self.num_cells) if config.random_start else torch.tensor([centre])
        self._next_cell = next_cells(self.size)

    def label(self, task: Tensor) -> str:
        places = ((name, *divmod(int(cell), self.size)) for name, cell in zip(self.goal_columns, task, strict=False))
        return "_".join(f"{name}_{row}_{column}" for name, row, column in places)

    def map_view(self, task: Tensor) -> MapView:
        return MapView(self.size, self.size, tuple(task[: len(self.goal_columns)].tolist()))

    def goal_cell(self, tasks: Tensor) -> Tensor:
        return tasks[:, len(self.goal_columns) - 1]


def next_cells(size: int) -> Tensor:
    """Cell that each action leads to from each cell, clipped at the walls, `[cells * actions]`."""
    cells, last = torch.arange(size**2), size - 1
    row, column = cells // size, cells % size
    up, down, left, right = row - 1, row + 1, column - 1, column + 1
    moved = [
        (row, column),
        (up.clamp(min=0), column),
        (row, right.clamp(max=last)),
        (down.clamp(max=last), column),
        (row, left.clamp(min=0)),
    ]
    return torch.stack([r * size + c for r, c in moved], dim=1).flatten()


def first_move(cell: Tensor, target: Tensor, size: int) -> Tensor:
    """First action of a shortest path: rows first, then columns, then stay."""
    rows = target // size - cell // size
    columns = target % size - cell % size
    vertical = torch.where(rows < 0, UP, DOWN)
    horizontal = torch.where(columns < 0, LEFT, torch.where(columns > 0, RIGHT, STAY))
    return torch.where(rows != 0, vertical, horizontal)
