"""Registration of the regions: quadrant, ring and checkerboard.

A model can be kept away from the development region in the same way as from the held-out one.
"""

import torch
from torch import Tensor

from icrl.envs.core import TensorEnv
from icrl.envs.tasks import split_rule


def _rows_and_columns(env: TensorEnv) -> tuple[Tensor, Tensor] | None:
    """Row and column of the goal of every task; None if tasks have no place."""
    cells = env.goal_cell(env.all_tasks())
    return None if cells is None else (cells // env.spec.width, cells % env.spec.width)


@split_rule("quadrant")
def quadrant(env: TensorEnv, seed: int) -> tuple[Tensor, Tensor] | None:
    """Goals strictly on one side of the middle row and of the middle column, in quadrant `seed` % 4, and those of the
    opposite one. In a room of even side the middle lines lie between two rows and two columns."""
    if (places := _rows_and_columns(env)) is None:
        return None
    row, column = ((2 * place - (env.spec.width - 1)).sign() for place in places)
    below, right = divmod(seed % 4, 2)
    sides = 2 * below - 1, 2 * right - 1
    return (row == sides[0]) & (column == sides[1]), (row == -sides[0]) & (column == -sides[1])


@split_rule("ring")
def ring(env: TensorEnv, seed: int) -> tuple[Tensor, Tensor] | None:
    """Goals at the walls, and the cells beside them, which are the ring of the room without walls."""
    if (places := _rows_and_columns(env)) is None:
        return None
    row, column = places
    from_wall = torch.stack([row, column, env.spec.width - 1 - row, env.spec.width - 1 - column]).amin(0)
    return from_wall == 0, from_wall == 1


@split_rule("checkerboard")
def checkerboard(env: TensorEnv, seed: int) -> tuple[Tensor, Tensor] | None:
    """Cells of one colour, and every other row of the other colour, whose neighbours are not learned either."""
    if (places := _rows_and_columns(env)) is None:
        return None
    row, column = places
    held_out = (row + column) % 2 == seed % 2
    return held_out, ~held_out & (row % 2 == 1)
