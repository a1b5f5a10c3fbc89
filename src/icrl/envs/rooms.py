"""Square rooms: cells, what a move leads to, shortest paths."""

import torch
from torch import Tensor

NUM_ACTIONS = 5
STAY, UP, RIGHT, DOWN, LEFT = range(NUM_ACTIONS)


def centre_of(size: int) -> Tensor:
    """The cell in the middle, `[1]`."""
    return torch.tensor([(size // 2) * size + size // 2])


def next_cells(size: int) -> Tensor:
    """Where each action leads from each cell, clipped at the walls, `[cells * actions]`."""
    cells = torch.arange(size**2)
    row, column = cells // size, cells % size
    last = size - 1
    moved = [
        (row, column),
        ((row - 1).clamp(min=0), column),
        (row, (column + 1).clamp(max=last)),
        ((row + 1).clamp(max=last), column),
        (row, (column - 1).clamp(min=0)),
    ]
    return torch.stack([r * size + c for r, c in moved], dim=1).flatten()


def first_move(cell: Tensor, target: Tensor, size: int) -> Tensor:
    """The first action of a shortest path: rows first, then columns, then stay."""
    rows = target // size - cell // size
    columns = target % size - cell % size
    vertical = torch.where(rows < 0, UP, DOWN)
    horizontal = torch.where(columns < 0, LEFT, torch.where(columns > 0, RIGHT, STAY))
    return torch.where(rows != 0, vertical, horizontal)
