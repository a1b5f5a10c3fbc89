"""Success on each task in one picture: on a map of the room where tasks have a place there, else in order."""

from collections.abc import Sequence

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from src.envs.base import TensorEnv
from src.evaluation.plots import goal_map_figure, ordered_figure


def success_figure(
    env: TensorEnv, train: tuple[Tensor, Sequence[float]], held_out: tuple[Tensor, Sequence[float]], *, title: str
) -> Figure:
    """The success on the training and the held-out tasks: tasks `[N, task_dim]` and their success, which may be empty
    where only the tasks are known. On a map, a cell shows the mean over the tasks it stands for, and is marked where
    they are all held out."""
    parts = ((held_out, env.landmark(held_out[0])), (train, env.landmark(train[0])))
    values: dict[int, list[float]] = {}
    places: list[set[int]] = []
    for (_, success), cells in parts:
        if cells is None:
            by_part = {"held-out tasks": np.array(held_out[1]), "training tasks": np.array(train[1])}
            return ordered_figure(by_part, title=title)
        places.append(set(cells.tolist()))
        for cell, value in zip(cells.tolist(), success, strict=False):
            values.setdefault(cell, []).append(value)
    if any(len(of_cell) > 1 for of_cell in values.values()):
        title = f"{title}, mean by {env.landmark_name}"
    only_start = env.cell(env.observe(env.starts), torch.zeros(1)) if len(env.starts) == 1 else None
    return goal_map_figure(
        env.spec.width,
        {cell: float(np.mean(of_tasks)) for cell, of_tasks in values.items()},
        held_out=places[0] - places[1],
        start=None if only_start is None else int(only_start),
        title=title,
    )
