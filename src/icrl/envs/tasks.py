"""Which tasks have source agents, which of these are for development, and which are held out."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from icrl.contracts import ConfigError
from icrl.envs.core import TensorEnv

if TYPE_CHECKING:
    from icrl.config.root import Config


class Split(NamedTuple):
    """Indices into `env.all_tasks()`."""

    train: list[int]
    held_out: list[int]


def permuted(num_tasks: int, seed: int) -> list[int]:
    """The tasks in the seeded order that splits draw from."""
    return torch.randperm(num_tasks, generator=torch.Generator().manual_seed(seed)).tolist()


def split_tasks(env: TensorEnv, config: Config) -> Split:
    """Training and held-out tasks of `env`, both in the seeded permutation of all tasks.

    With `tasks.split=random` the first `num_train` of it get source agents (0: all that are not held out) and the last
    `num_held_out` (0: all others) are held out, so held-out tasks stay the same when there are more training tasks. The
    other rules hold out a region of the room or a list of tasks, or the last `num_held_out` of these; of the rest the
    first `num_train` (0: all) get source agents.

    Raises `ConfigError` where a rule has no meaning in this world, or there are not so many tasks."""
    options, num_tasks = config.tasks, len(env.all_tasks())
    order = permuted(num_tasks, options.seed)
    asked = f"tasks.num_train={options.num_train} and tasks.num_held_out={options.num_held_out}"
    if options.split == "random":
        num_train = options.num_train or num_tasks - options.num_held_out
        if num_train < 2 or num_train + max(options.num_held_out, 1) > num_tasks:
            raise ConfigError(
                f"{asked}: this environment has {num_tasks} tasks, which must be enough for both, with at least two "
                "for training and at least one held out"
            )
        first = num_tasks - options.num_held_out if options.num_held_out else num_train
        return Split(order[:num_train], order[first:])
    outside = _region(env, config)
    train, held_out = ([task for task in order if (task in outside) is side] for side in (False, True))
    if len(train) < max(options.num_train, 2) or len(held_out) < max(options.num_held_out, 1):
        raise ConfigError(
            f"{asked}: tasks.split={options.split} leaves {len(train)} tasks for training and holds out "
            f"{len(held_out)}, which must be enough, with at least two for training and one held out; 0 takes all"
        )
    return Split(train[: options.num_train or None], held_out[-options.num_held_out :])


def _region(env: TensorEnv, config: Config) -> set[int]:
    """The tasks that a rule other than `random` holds out. Middle lines of a room lie between two rows or columns where
    its side is even."""
    options, tasks, width = config.tasks, env.all_tasks(), env.spec.width
    if options.split == "list":
        if beyond := [task for task in options.held_out if task >= len(tasks)]:
            raise ConfigError(
                f"tasks.held_out={options.held_out}: {beyond[0]} must be below {len(tasks)}, the number of tasks of "
                f"env.name={config.env.name}"
            )
        return set(options.held_out)
    cells = env.goal_cell(tasks)
    if cells is None:
        raise ConfigError(
            f"tasks.split={options.split}: tasks of env.name={config.env.name} have no place on a map; must be random "
            "or list"
        )
    row, column = cells // width, cells % width
    if options.split == "quadrant":
        below, right = divmod(options.seed % 4, 2)
        inside = [(2 * place - (width - 1)).sign() == 2 * far - 1 for place, far in ((row, below), (column, right))]
        held_out = inside[0] & inside[1]
    elif options.split == "ring":
        held_out = (torch.minimum(row, column) == 0) | (torch.maximum(row, column) == width - 1)
    else:
        held_out = (row + column) % 2 == options.seed % 2
    return set(held_out.nonzero().flatten().tolist())


def development_of(train: list[int], number: int) -> list[int]:
    """The training tasks on which recipes and checkpoints are chosen, and no model learns: the last `number`.

    Raises `ConfigError` where none would be left to learn from."""
    if number >= len(train):
        raise ConfigError(
            f"data.num_development_tasks={number} must be below {len(train)}, the number of training tasks"
        )
    return train[len(train) - number :]


def streams_of(tasks: Tensor, streams_per_task: int) -> Tensor:
    """Repeat each task for its streams, task by task: `[num_tasks, task_dim] -> [num_tasks * streams, task_dim]`."""
    return tasks.repeat_interleave(streams_per_task, dim=0)
