"""Split of the tasks into training, development and held-out tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from icrl.config.options import OneOrMore, Options, option, refuse
from icrl.contracts import ConfigError, Env
from icrl.envs.core import State, TensorEnv

if TYPE_CHECKING:
    from icrl.app.root import Config


# Worlds in which streams change their tasks, of an extension; see `changing`.
CHANGES: list[Callable[[Env[Any], Any, Tensor, list[int]], Env[Any]]] = []


class TasksConfig(Options):
    split: Literal["random", "quadrant", "ring", "checkerboard", "list"] = option(
        "random",
        "rule of the held-out tasks. random: the last of a seeded permutation; list: tasks.held_out; in a "
        "room also quadrant: the goals strictly on one side of the middle row and of the middle column, "
        "quadrant seed % 4; ring: the goals at the walls; checkerboard: the cells of one colour, seed % 2",
    )
    num_train: int = option(57, "tasks with source agents, at least 2 (0: all that are not held out)", ge=0)
    num_held_out: int = option(
        0,
        "tasks held out for the test, learned in context alone (0: all tasks without source agents; with "
        "another split than random: all that it holds out)",
        ge=0,
    )
    held_out: Annotated[list[Annotated[int, Field(ge=0)]], OneOrMore] = option(
        [], "numbers of the held-out tasks if tasks.split is list"
    )
    seed: int = option(0, "seed of the split into training and held-out tasks", ge=0, le=10**9)

    @model_validator(mode="after")
    def _check(self) -> Self:
        held_out, random, listed = self.held_out, self.split == "random", self.split == "list"
        given, no_number = f"tasks.held_out={held_out}", random and not self.num_train and not self.num_held_out
        refuse(self.num_train == 1, "tasks.num_train=1: must be at least 2, or 0 for all tasks that are not held out")
        refuse(no_number, "tasks.num_train=0 and tasks.num_held_out=0: tasks.split=random needs one of them")
        refuse(listed and not held_out, f"{given}: tasks.split=list needs at least one task")
        refuse(held_out and not listed, f"{given} is for tasks.split=list, and this is tasks.split={self.split}")
        refuse(len(set(held_out)) < len(held_out), f"{given}: no task may be there twice")
        return self


class Split(NamedTuple):
    """Indices into `env.all_tasks()`."""

    train: list[int]
    held_out: list[int]


def changing(env: Env[State], config: Config, all_tasks: Tensor, train: list[int]) -> Env[State]:
    """`env` itself, or with `source.task_change` the world in which streams change among the training tasks that are
    not set aside for development, which is one of an extension; `train`: the training tasks, as indices into
    `all_tasks` `[num_tasks, task_dim]`. Raises `ConfigError` if its streams have no tasks that could change."""
    probability = config.source.task_change
    if not probability:
        return env
    lacking = "needs an extension that is not installed: give source.task_change=0"
    refuse(not CHANGES, f"source.task_change={probability} {lacking}")
    return CHANGES[-1](env, config, all_tasks, train)


def permuted(num_tasks: int, seed: int) -> list[int]:
    """All tasks in the seeded order that splits draw from."""
    return torch.randperm(num_tasks, generator=torch.Generator().manual_seed(seed)).tolist()


def split_tasks(env: TensorEnv, config: Config) -> Split:
    """Training and held-out tasks of `env`, both in the seeded permutation of all tasks.

    With `tasks.split=random` the last `num_held_out` of it (0: all that are not for training) are held out, so they
    stay the same when there are more training tasks. The other rules hold out a region of the room or a list of tasks,
    or the last `num_held_out` of these. Of the rest the first `num_train` (0: all) get source agents. Raises
    `ConfigError` if a rule has no meaning in this world, or if there are too few tasks."""
    options = config.tasks
    order = permuted(len(env.all_tasks()), options.seed)
    outside = held_out_region(env, config, order)
    train, held_out = ([task for task in order if (task in outside) is side] for side in (False, True))
    number = max(2, len(order) * 2 // 3)
    refuse(
        len(train) < max(options.num_train, 2) or len(held_out) < max(options.num_held_out, 1),
        f"tasks.num_train={options.num_train} and tasks.num_held_out={options.num_held_out}: this environment has "
        f"{len(order)} tasks, and tasks.split={options.split} leaves {len(train)} tasks for training and holds out "
        f"{len(held_out)}, and there must be as many as you ask for, at least two for training and one held out"
        + (f"; give tasks.num_train={number} tasks.num_held_out=0" if number < len(order) else ""),
    )
    return Split(train[: options.num_train or None], held_out[-options.num_held_out :])


def held_out_region(env: TensorEnv, config: Config, order: list[int]) -> set[int]:
    """Tasks that the rule holds out. In a room of even side the middle lines lie between two rows and two columns."""
    options = config.tasks
    if options.split == "random":
        return set(order[max(len(order) - options.num_held_out, 0) if options.num_held_out else options.num_train :])
    if options.split == "list":
        largest, number = max(options.held_out), len(order)
        allowed = f"{largest} must be below {number}, the number of tasks of env.name={config.env.name}"
        refuse(largest >= number, f"tasks.held_out={options.held_out}: {allowed}")
        return set(options.held_out)
    row, column = _rows_and_columns(env, config)
    if options.split == "quadrant":
        held_out = _quadrant(row, column, env.spec.width, options.seed % 4)
    elif options.split == "ring":
        held_out = _ring(row, column, env.spec.width)
    else:
        held_out = (row + column) % 2 == options.seed % 2
    return set(held_out.nonzero().flatten().tolist())


def _rows_and_columns(env: TensorEnv, config: Config) -> tuple[Tensor, Tensor]:
    """Row and column of the goal of every task. Raises `ConfigError` if tasks have no place."""
    cells = env.goal_cell(env.all_tasks())
    if cells is None:
        reason = f"tasks of env.name={config.env.name} have no place on a map; must be random or list"
        raise ConfigError(f"tasks.split={config.tasks.split}: {reason}")
    return cells // env.spec.width, cells % env.spec.width


def _quadrant(row: Tensor, column: Tensor, width: int, number: int) -> Tensor:
    below, right = divmod(number, 2)
    sides = ((2 * cell - (width - 1)).sign() == 2 * far - 1 for cell, far in ((row, below), (column, right)))
    return torch.logical_and(*sides)


def _ring(row: Tensor, column: Tensor, width: int) -> Tensor:
    return (torch.minimum(row, column) == 0) | (torch.maximum(row, column) == width - 1)


def development_of(env: TensorEnv, config: Config, train: list[int]) -> list[int]:
    """Development tasks among the training tasks `train`: recipes and checkpoints are chosen on them, and no model
    learns from them.

    `data.development=random` sets aside the last `data.num_development_tasks` of `train`, and `region` all of `train`
    in a region that is to the other training tasks as the held-out region is (see `_development_region`). Raises
    `ConfigError` if the region is empty, or if no other training task is left."""
    options = config.data
    number = options.num_development_tasks
    if options.development == "random" or not number:
        allowed = f"must be below {len(train)}, the number of training tasks"
        fewer = f"give data.num_development_tasks={max(1, len(train) // 3)}"
        refuse(number >= len(train), f"data.num_development_tasks={number} {allowed}: {fewer}")
        return train[len(train) - number :]
    given, chosen = f"data.development=region with tasks.split={config.tasks.split}", _development_region(env, config)
    tasks = [task for task in train if task in chosen]
    left = len(train) - len(tasks)
    refuse(
        not tasks or not left, f"{given} sets aside {len(tasks)} training tasks and leaves {left}; both must be above 0"
    )
    return tasks


def _development_region(env: TensorEnv, config: Config) -> set[int]:
    """Tasks outside the held-out region that a model can be kept away from in the same way.

    For a quadrant: the opposite one. For the ring: the cells beside it, which are the ring of the room without walls.
    For a colour of the checkerboard: every other row of the other colour, whose neighbours are not learned either."""
    row, column = _rows_and_columns(env, config)
    rule, seed, width = config.tasks.split, config.tasks.seed, env.spec.width
    if rule == "quadrant":
        region = _quadrant(row, column, width, 3 - seed % 4)
    elif rule == "ring":
        region = (torch.minimum(row, column) == 1) | (torch.maximum(row, column) == width - 2)
        region &= ~_ring(row, column, width)
    else:
        region = ((row + column) % 2 != seed % 2) & (row % 2 == 1)
    return set(region.nonzero().flatten().tolist())


def streams_of(tasks: Tensor, streams_per_task: int) -> Tensor:
    """Repeat each task for its streams, task by task: `[num_tasks, task_dim] -> [num_tasks * streams, task_dim]`."""
    return tasks.repeat_interleave(streams_per_task, dim=0)
