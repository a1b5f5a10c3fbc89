"""Keyword arguments of `gymnasium.make`, read as a world and its tasks; errors say what is allowed."""

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError
from torch import Tensor

from icrl.config.options import in_words
from icrl.envs import env_options, make_env
from icrl.envs.core import TensorEnv

_NO_LIMIT = 2**62


def make_world(
    num_envs: int, *, name: str, max_episode_steps: int | None = None, one_task: bool = False, **given: Any
) -> tuple[TensorEnv, Tensor | None]:
    """World `name` with its options among `given`, and its tasks `[num_envs, task_dim]`; None if no task is given.

    A task is a row of `all_tasks` given as `task=`, or column by column, as in `goal=` or `key=` and `door=`; a cell
    may be given as (row, column). Plural names (`tasks=`, `goals=`), allowed unless `one_task`, give each environment
    its own. The clock truncates but never terminates, as Gymnasium's own; `max_episode_steps=None` means no limit.
    Raises `ValueError` for a value out of range and `TypeError` for a missing or unknown argument."""
    if num_envs < 1:
        raise ValueError(f"num_envs={num_envs}: must be an int >= 1")
    if max_episode_steps is not None and max_episode_steps < 1:
        raise ValueError(f"max_episode_steps={max_episode_steps}: must be an int >= 1, or None for no limit")
    declared = env_options()[name].model_fields
    core = _make_core(name, {key: value for key, value in given.items() if key in declared})
    core.spec = core.spec._replace(max_episode_steps=max_episode_steps or _NO_LIMIT)
    rest = {key: value for key, value in given.items() if key not in declared}
    names = ("task", *core.task_columns)
    known = names if one_task else (*names, *(f"{each}s" for each in names))
    for key, value in rest.items():
        if key not in known:
            raise TypeError(f"{key}={value!r}: no such argument; the task may be given as {', '.join(known)}")
    columns: dict[str, Sequence[Any]] = {}
    for each in names:
        one, many = rest.get(each), rest.get(f"{each}s")
        if many is not None and (one is not None or len(many) != num_envs):
            raise ValueError(f"{each}s={many}: must be num_envs={num_envs} of them, and {each}={one} must be None then")
        if one is not None or many is not None:
            columns[each] = [one] * num_envs if many is None else many
    return core, _read_tasks(columns, core) if columns else None


def _make_core(name: str, options: dict[str, Any]) -> TensorEnv:
    """World with checked options; its clock is set by the caller."""
    try:
        return make_env(env_options()[name](variant="gymnasium", **options))
    except ValidationError as error:
        raise ValueError(in_words(error, env_options()[name], options)) from error


def _read_tasks(given: dict[str, Sequence[Any]], core: TensorEnv) -> Tensor:
    """Tasks `[num_envs, task_dim]` from one value per environment under each name."""
    columns, width = core.task_columns, core.spec.width
    if set(given) not in ({"task"}, set(columns)):
        raise ValueError(f"{', '.join(given)}: a task is given by task alone, or by all of {', '.join(columns)}")
    rows = given["task"] if "task" in given else list(zip(*(given[name] for name in columns), strict=True))
    tasks, known = [_read_task(row, width) for row in rows], core.all_tasks().tolist()
    for i, task in enumerate(tasks):
        if task not in known:
            values = ", ".join(f"{name}={column[i]}" for name, column in given.items())
            cells = f", a cell as (row, column) with both >= 0 and < size={width}" if width else ""
            raise ValueError(f"{values}: must be one of the world's {len(known)} tasks ({', '.join(columns)}){cells}")
    return torch.tensor(tasks)


def _read_task(row: Any, width: int) -> list[int]:
    """Task as plain integers; empty, and so no task, unless it is made of integers and of cells inside the room."""
    try:
        return [
            operator.index(part)
            if np.ndim(part) == 0
            else int(np.ravel_multi_index(tuple(map(operator.index, part)), (width, width)))
            for part in row
        ]
    except (TypeError, ValueError):
        return []
