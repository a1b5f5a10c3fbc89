"""Success on each task in one picture: on a map of the room where tasks have a place there, else in order."""

from collections.abc import Sequence

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from icrl.envs.core import TensorEnv
from icrl.plots.plots import goal_map_figure, ordered_figure


def success_figure(
    env: TensorEnv,
    train: tuple[Tensor, Sequence[float]],
    held_out: tuple[Tensor, Sequence[float]],
    development: tuple[Tensor, Sequence[float]],
    *,
    title: str,
) -> Figure:
    """The success on training, held-out and development tasks: tasks `[N, task_dim]` and their success, which may be
    empty where only the tasks are known. On a map, a cell shows the mean over the tasks it stands for, and is marked
    where they are all held out, or all for development."""
    named = {"held-out tasks": held_out, "training tasks": train, "development tasks": development}
    parts = [(tasks, env.goal_cell(tasks[0])) for tasks in named.values()]
    values: dict[int, list[float]] = {}
    places: list[set[int]] = []
    for (_, success), cells in parts:
        if cells is None:
            return ordered_figure({name: np.array(of) for name, (_, of) in named.items()}, title=title)
        places.append(set(cells.tolist()))
        for cell, value in zip(cells.tolist(), success, strict=False):
            values.setdefault(cell, []).append(value)
    if any(len(of_cell) > 1 for of_cell in values.values()):
        title = f"{title}, mean by {env.goal_cell_name}"
    only_start = env.cell(env.observe(env.starts), torch.zeros(1)) if len(env.starts) == 1 else None
    return goal_map_figure(
        env.spec.width,
        {cell: float(np.mean(of_tasks)) for cell, of_tasks in values.items()},
        held_out=places[0] - places[1] - places[2],
        development=places[2] - places[0] - places[1],
        start=None if only_start is None else int(only_start),
        title=title,
    )
