"""Tasks of a world from numbers, or from cells of its map."""

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from icrl.envs.core import TensorEnv


def read_task(env: TensorEnv, given: Sequence[Any]) -> list[float]:
    """Task from its numbers; a cell may be given as (row, column). A world may read its tasks itself, by a method
    `read_task`. Raises `ValueError` if there is no such task."""
    if reads := getattr(env, "read_task", None):
        return reads(given)
    width, tasks = env.spec.width, env.all_tasks().tolist()

    def integer(part: Any) -> int:
        if np.ndim(part) == 0:
            return operator.index(part)
        return int(np.ravel_multi_index(tuple(map(operator.index, part)), (width, width)))

    try:
        task = [integer(part) for part in given]
    except (TypeError, ValueError):  # not made of integers, or of cells inside the room
        task = list[int]()
    if task not in tasks:
        cells = f", a cell as (row, column) with both >= 0 and < size={width}" if width else ""
        raise ValueError(f"must be one of the world's {len(tasks)} tasks ({', '.join(env.task_columns)}){cells}")
    return [*task]
