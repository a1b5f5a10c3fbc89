"""Split of the tasks into training, development and held-out tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from icrl.config.options import OneOrMore, Options, option, refuse
from icrl.contracts import ConfigError, Env, Step
from icrl.envs.core import State, TensorEnv
from icrl.randomness import integers, mix, uniform

if TYPE_CHECKING:
    from icrl.config.root import Config


_CHANGES = 1 << 41  # mixed into a stream's seed, so that changes of the task use random numbers of their own


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


class ChangingTasks:
    """World `env` in which the next episode of a stream is on another of `tasks` `[N, task_dim]` with `probability`,
    drawn by the stream's seed and the number of the episode. No observation tells it."""

    def __init__(self, env: Env[State], tasks: Tensor, probability: float) -> None:
        self._env, self._tasks, self._probability = env, tasks, probability
        self.spec, self.all_tasks, self.reset, self.optimal_action = (
            env.spec,
            env.all_tasks,
            env.reset,
            env.optimal_action,
        )

    def step(self, state: State, action: Tensor) -> tuple[State, Step]:
        state, step = self._env.step(state, action)
        seed = mix(state.seed, _CHANGES)
        changes = (step.terminated | step.truncated) & (uniform(seed, state.episode) < self._probability)
        other = self._tasks[integers(mix(seed, 1), state.episode, len(self._tasks))]
        state = state._replace(task=torch.where(changes[:, None], other, state.task))
        return state, step._replace(optimal_action=self.optimal_action(state))


class Split(NamedTuple):
    """Indices into `env.all_tasks()`."""

    train: list[int]
    held_out: list[int]


def changing(env: Env[State], config: Config, tasks: Tensor) -> Env[State]:
    """`env` itself, or with `source.task_change` the world in which streams change among the training `tasks` that are
    not set aside for development. Raises `ConfigError` if its streams have no tasks that could change."""
    if not config.source.task_change:
        return env
    own, name = type(env).step is not TensorEnv.step, config.env.name
    refuse(own, f"source.task_change={config.source.task_change}: a stream of env.name={name} is made for one task")
    set_aside = development_of(list(range(len(tasks))), config.data.num_development_tasks)
    return ChangingTasks(env, tasks[: len(tasks) - len(set_aside)], config.source.task_change)


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
    outside = _held_out_region(env, config, order)
    train, held_out = ([task for task in order if (task in outside) is side] for side in (False, True))
    refuse(
        len(train) < max(options.num_train, 2) or len(held_out) < max(options.num_held_out, 1),
        f"tasks.num_train={options.num_train} and tasks.num_held_out={options.num_held_out}: this environment has "
        f"{len(order)} tasks, and tasks.split={options.split} leaves {len(train)} tasks for training and holds out "
        f"{len(held_out)}, which must be enough, with at least two for training and at least one held out",
    )
    return Split(train[: options.num_train or None], held_out[-options.num_held_out :])


def _held_out_region(env: TensorEnv, config: Config, order: list[int]) -> set[int]:
    """Tasks that the rule holds out. In a room of even side the middle lines lie between two rows and two columns."""
    options, name, width = config.tasks, config.env.name, env.spec.width
    if options.split == "random":
        return set(order[max(len(order) - options.num_held_out, 0) if options.num_held_out else options.num_train :])
    if options.split == "list":
        largest, number = max(options.held_out), len(order)
        allowed = f"{largest} must be below {number}, the number of tasks of env.name={name}"
        refuse(largest >= number, f"tasks.held_out={options.held_out}: {allowed}")
        return set(options.held_out)
    cells = env.goal_cell(env.all_tasks())
    if cells is None:
        reason = f"tasks of env.name={name} have no place on a map; must be random or list"
        raise ConfigError(f"tasks.split={options.split}: {reason}")
    row, column = cells // width, cells % width
    if options.split == "quadrant":
        below, right = divmod(options.seed % 4, 2)
        sides = ((2 * cell - (width - 1)).sign() == 2 * far - 1 for cell, far in ((row, below), (column, right)))
        held_out = torch.logical_and(*sides)
    elif options.split == "ring":
        held_out = (torch.minimum(row, column) == 0) | (torch.maximum(row, column) == width - 1)
    else:
        held_out = (row + column) % 2 == options.seed % 2
    return set(held_out.nonzero().flatten().tolist())


def development_of(train: list[int], number: int) -> list[int]:
    """The last `number` training tasks: recipes and checkpoints are chosen on them, and no model learns from them.
    Raises `ConfigError` if no other training task is left."""
    allowed = f"must be below {len(train)}, the number of training tasks"
    refuse(number >= len(train), f"data.num_development_tasks={number} {allowed}")
    return train[len(train) - number :]


def streams_of(tasks: Tensor, streams_per_task: int) -> Tensor:
    """Repeat each task for its streams, task by task: `[num_tasks, task_dim] -> [num_tasks * streams, task_dim]`."""
    return tasks.repeat_interleave(streams_per_task, dim=0)
