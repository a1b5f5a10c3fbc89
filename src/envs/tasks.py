"""Which tasks have source agents and which are held out."""

from typing import NamedTuple

import torch
from torch import Tensor

from src.contracts import PipelineError


class Split(NamedTuple):
    """Indices into `env.all_tasks()`."""

    train: list[int]
    held_out: list[int]


def split_tasks(num_tasks: int, num_train: int, num_held_out: int, seed: int) -> Split:
    """A seeded permutation of all tasks: the first `num_train` get source agents, the last `num_held_out` (0: all
    others) are held out. So held-out tasks stay the same when there are more training tasks.

    Raises `PipelineError` where there are fewer tasks than that, or none would be held out."""
    if num_train + max(num_held_out, 1) > num_tasks:
        raise PipelineError(
            f"tasks.num_train={num_train} and tasks.num_held_out={num_held_out}: this environment has {num_tasks} "
            "tasks, which must be enough for both, with at least one held out"
        )
    order = torch.randperm(num_tasks, generator=torch.Generator().manual_seed(seed)).tolist()
    return Split(order[:num_train], order[num_tasks - num_held_out if num_held_out else num_train :])


def streams_of(tasks: Tensor, streams_per_task: int) -> Tensor:
    """Repeat each task for its streams, task by task: `[num_tasks, task_dim] -> [num_tasks * streams, task_dim]`."""
    return tasks.repeat_interleave(streams_per_task, dim=0)
