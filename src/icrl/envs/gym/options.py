"""From the keyword arguments of Gymnasium's `make` to a world and its tasks, with errors that tell what is allowed."""

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError
from torch import Tensor

from icrl.config.env_schema import ENVS
from icrl.config.options import in_words, replace
from icrl.envs import make_env
from icrl.envs.core import TensorEnv

_NO_LIMIT = 2**62


def world_of(name: str, max_episode_steps: int | None, given: dict[str, Any]) -> tuple[TensorEnv, dict[str, Any]]:
    """The world with the options among `given`, and what else is given. Raises `ValueError` for what is out of range.

    The clock is no part of the rules here: it truncates, as Gymnasium's own does, but never terminates."""
    if max_episode_steps is not None and max_episode_steps < 1:
        raise ValueError(f"max_episode_steps={max_episode_steps}: must be an int >= 1, or None for no limit")
    declared = ENVS[name].model_fields
    options = {key: value for key, value in given.items() if key in declared}
    try:
        config = ENVS[name](variant="gymnasium", **options)
    except ValidationError as error:
        raise ValueError(in_words(error, ENVS[name], options)) from error
    core = make_env(replace(config, max_episode_steps=_NO_LIMIT))
    core.spec = core.spec._replace(max_episode_steps=max_episode_steps or _NO_LIMIT)
    return core, {key: value for key, value in given.items() if key not in declared}


def task_of(core: TensorEnv, given: dict[str, Any]) -> list[int] | None:
    """The row of `all_tasks` given as `task=`, or column by column, as in `goal=` or `key=` and `door=`; None where
    nothing is given. A cell may be given as (row, column)."""
    _check_names(given, ("task", *core.task_columns))
    tasks = _tasks({name: [value] for name, value in given.items() if value is not None}, core)
    return None if tasks is None else tasks[0].tolist()


def tasks_of(core: TensorEnv, given: dict[str, Any], num_envs: int) -> Tensor | None:
    """The tasks `[num_envs, task_dim]`: as in `task_of` one for all, or with an s at its name one for each."""
    names = ("task", *core.task_columns)
    _check_names(given, (*names, *(f"{name}s" for name in names)))
    of_each: dict[str, Sequence[Any]] = {}
    for name in names:
        one, many = given.get(name), given.get(f"{name}s")
        if many is not None and (one is not None or len(many) != num_envs):
            raise ValueError(f"{name}s={many}: must be num_envs={num_envs} of them, and {name}={one} must be None then")
        if one is not None or many is not None:
            of_each[name] = [one] * num_envs if many is None else many
    return _tasks(of_each, core)


def _tasks(of_each: dict[str, Sequence[Any]], core: TensorEnv) -> Tensor | None:
    """From the values of each environment under their names."""
    if not of_each:
        return None
    columns = core.task_columns
    if set(of_each) not in ({"task"}, set(columns)):
        raise ValueError(f"{', '.join(of_each)}: a task is given by task alone, or by all of {', '.join(columns)}")
    rows = of_each["task"] if "task" in of_each else list(zip(*(of_each[name] for name in columns), strict=True))
    known = core.all_tasks().tolist()
    tasks: list[list[int]] = []
    for i, row in enumerate(rows):
        tasks.append(_numbers(row, core.spec.width))
        if tasks[i] not in known:
            what = ", ".join(f"{name}={values[i]}" for name, values in of_each.items())
            cells = f", a cell as (row, column) with both >= 0 and < size={core.spec.width}" if core.spec.width else ""
            raise ValueError(f"{what}: must be one of the world's {len(known)} tasks ({', '.join(columns)}){cells}")
    return torch.tensor(tasks)


def _numbers(row: Any, width: int) -> list[int]:
    """A task as plain integers; what is none gives a list that no task equals."""
    try:
        return [operator.index(part) if np.ndim(part) == 0 else _cell(part, width) for part in row]
    except (TypeError, ValueError):
        return []


def _cell(place: Sequence[int], width: int) -> int:
    row, column = map(operator.index, place)
    return row * width + column if 0 <= row < width and 0 <= column < width else -1


def _check_names(given: dict[str, Any], known: Sequence[str]) -> None:
    for name, value in given.items():
        if name not in known:
            raise TypeError(f"{name}={value!r}: no such argument; the task may be given as {', '.join(known)}")
