"""Which tasks have source agents and which are held out."""

from typing import NamedTuple

import torch
from torch import Tensor

from src.contracts import PipelineError


class Split(NamedTuple):
    """Indices into `env.all_tasks()`."""

    train: list[int]
    held_out: list[int]


def split_tasks(num_tasks: int, num_train: int, seed: int) -> Split:
    """A seeded permutation of all tasks: the first `num_train` get source agents, the others are held out.

    Raises `PipelineError` where no task would be held out."""
    if not num_train < num_tasks:
        raise PipelineError(
            f"tasks.num_train={num_train} leaves no held-out task: this environment has {num_tasks} tasks, "
            f"so it must be at most {num_tasks - 1}"
        )
    order = torch.randperm(num_tasks, generator=torch.Generator().manual_seed(seed)).tolist()
    return Split(order[:num_train], order[num_train:])


def streams_of(tasks: Tensor, streams_per_task: int) -> Tensor:
    """Repeat each task for its streams, task by task: `[num_tasks, task_dim] -> [num_tasks * streams, task_dim]`."""
    return tasks.repeat_interleave(streams_per_task, dim=0)
