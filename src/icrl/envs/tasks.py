"""Split of the tasks into training, development and held-out tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from icrl.config.modules import load_plugins, registrar
from icrl.config.options import OR_ELSEWHERE, OneOf, OneOrMore, Options, option, refuse
from icrl.config.schedules import nearest
from icrl.contracts import ConfigError, Env
from icrl.envs.core import State, TensorEnv

if TYPE_CHECKING:
    from icrl.app.root import Config


# Makers, of an extension, of a world whose streams change their task between episodes; see `changing`.
CHANGES: list[Callable[[Env[Any], Any, Tensor, list[int]], Env[Any]]] = []

# From a world and tasks.seed, two masks over all tasks, `[num_tasks]` bool: those held out, and similar ones of the
# others for development; None if tasks have no place in this world.
Region = Callable[[TensorEnv, int], tuple[Tensor, Tensor] | None]
_REGIONS: dict[str, Region] = {}
_SPLITS = ("random", "list")


def split_rule(name: str) -> Callable[[Region], Region]:
    """Decorator of a function from a world and `tasks.seed` to the region that `tasks.split=name` holds out."""
    return registrar("split_rule", name, _REGIONS, built_in=_SPLITS)


def regions() -> list[str]:
    """Values of `tasks.split` that hold out a region."""
    load_plugins()
    return [*_REGIONS]


class TasksConfig(Options):
    split: Annotated[str, OneOf(_SPLITS, r"\w+", "the name of a rule of an extension, or of yours")] = option(
        "random",
        "rule that chooses the held-out tasks. random: the last of a seeded permutation; list: tasks.held_out; "
        "other names: a region of the world",
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
        known = [*_SPLITS, *regions()]
        must = f"must be one of {', '.join(known)}{nearest(self.split, known)}{OR_ELSEWHERE}"
        refuse(self.split not in known, f"tasks.split={self.split}: {must}")
        held_out, random, listed = self.held_out, self.split == "random", self.split == "list"
        given, no_number = f"tasks.held_out={held_out}", random and not self.num_train and not self.num_held_out
        refuse(self.num_train == 1, "tasks.num_train=1: must be at least 2, or 0 for all tasks that are not held out")
        refuse(no_number, "tasks.num_train=0 and tasks.num_held_out=0: tasks.split=random needs one of them")
        refuse(listed and not held_out, f"{given}: tasks.split=list needs at least one task")
        refuse(held_out and not listed, f"{given} is for tasks.split=list, but this is tasks.split={self.split}")
        refuse(len(set(held_out)) < len(held_out), f"{given}: must have no duplicates")
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
    refuse(not CHANGES, f"source.task_change={probability} needs an extension that is not installed: give 0")
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
    number = max(2, len(order) * 2 // 3) if options.split == "random" else 0
    helps = number < len(order) and (number or (held_out and len(train) > 1))
    refuse(
        len(train) < max(options.num_train, 2) or len(held_out) < max(options.num_held_out, 1),
        f"tasks.num_train={options.num_train} and tasks.num_held_out={options.num_held_out}: this environment has "
        f"{len(order)} tasks, and tasks.split={options.split} leaves {len(train)} tasks for training and holds out "
        f"{len(held_out)}; it must leave what you ask for, and at least two for training and one held out"
        + (f"; give tasks.num_train={number} tasks.num_held_out=0" if helps else ""),
    )
    return Split(train[: options.num_train or None], held_out[-options.num_held_out :])


def held_out_region(env: TensorEnv, config: Config, order: list[int]) -> set[int]:
    """Tasks that the rule holds out."""
    options = config.tasks
    if options.split == "random":
        return set(order[max(len(order) - options.num_held_out, 0) if options.num_held_out else options.num_train :])
    if options.split == "list":
        largest, number = max(options.held_out), len(order)
        allowed = f"{largest} must be below {number}, the number of tasks of env.name={config.env.name}"
        refuse(largest >= number, f"tasks.held_out={options.held_out}: {allowed}")
        return set(options.held_out)
    return _region_of(env, config)[0]


def _region_of(env: TensorEnv, config: Config) -> tuple[set[int], set[int]]:
    """Held-out tasks by the rule of a region, and development tasks. Raises `ConfigError` if tasks have no place."""
    split, name = config.tasks.split, config.env.name
    found = _REGIONS[split](env, config.tasks.seed)
    if found is None:
        raise ConfigError(f"tasks.split={split}: tasks of env.name={name} have no place on a map; give random or list")
    held_out, development = (set(region.nonzero().flatten().tolist()) for region in found)
    return held_out, development


def development_of(env: TensorEnv, config: Config, train: list[int]) -> list[int]:
    """Development tasks among the training tasks `train`: recipes and checkpoints are chosen on them, and no model
    learns from them.

    `data.development=random` sets aside the last `data.num_development_tasks` of `train`, and `region` all of `train`
    in a region that is to the other training tasks as the held-out region is. Raises `ConfigError` if the region is
    empty, or if no other training task is left."""
    options, number = config.data, config.data.num_development_tasks
    if options.development == "random" or not number:
        allowed = f"must be below {len(train)}, the number of training tasks"
        fewer = f"give data.num_development_tasks={max(1, len(train) // 3)}"
        refuse(number >= len(train), f"data.num_development_tasks={number} {allowed}: {fewer}")
        return train[len(train) - number :]
    given, chosen = f"data.development=region with tasks.split={config.tasks.split}", _region_of(env, config)[1]
    tasks = [task for task in train if task in chosen]
    left = len(train) - len(tasks)
    refuse(
        not tasks or not left, f"{given} sets aside {len(tasks)} training tasks and leaves {left}; both must be above 0"
    )
    return tasks
