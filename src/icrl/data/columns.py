"""Columns of histories: rules for those of files, what is recorded of a step, and the transitions made of it."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from icrl.contracts import ConfigError, Rollout
from icrl.spaces import EnvSpec

OBSERVATIONS, ACTIONS = ("obs", "next_obs"), ("action", "optimal_action")  # columns with the shape of a space
_CHUNK = 2**27  # bytes that are in memory at a time when all of a store are read
_MOST_TASKS = 10**6


class Rule(NamedTuple):
    """Rule for a column of a file: the kinds of its dtype, the most axes of a step, and which numbers are valid."""

    kinds: str
    axes: int
    form: str
    valid: Callable[[np.ndarray], np.ndarray]
    words: str


def _finite(column: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.isfinite(column if column.dtype.kind != "f" else column.astype(np.float32))


def _task(column: np.ndarray) -> np.ndarray:
    return (column >= 0) & (column < _MOST_TASKS) & (column == np.floor(column))


_FINITE = (_finite, "finite in float32")
_OBS = Rule("biuf", 3, "a number, a vector or an image for each step", *_FINITE)
_ACTION = Rule("biuf", 1, "a number or a vector for each step", *_FINITE)
_SCALAR = Rule("biuf", 0, "a number for each step", *_FINITE)
_FLAG = _SCALAR._replace(valid=lambda column: (column == 0) | (column == 1), words="0 or 1")
RULES = {  # what the spaces of a world allow is checked later, and so is what columns say of each other
    **{"obs": _OBS, "action": _ACTION, "reward": _SCALAR, "next_obs": _OBS, "timestep": _SCALAR},
    **{"terminated": _FLAG, "truncated": _FLAG},
    "optimal_action": _ACTION._replace(
        valid=lambda column: _finite(column) | np.isnan(column), words="finite in float32, or NaN if unknown"
    ),
    "task": Rule("iuf", 0, "a number for each row", _task, f"a whole number from 0 to {_MOST_TASKS - 1}"),
}


def check_column(place: str, name: str, column: np.ndarray) -> None:
    """Raise `ConfigError`, which names place, column, what it has and what is allowed, if a column `[T, ...]` of a file
    breaks its rule."""
    rule, of_step = RULES[name], column.shape[1:]
    if column.dtype.kind not in rule.kinds or not column.ndim or len(of_step) > rule.axes or 0 in of_step:
        has = f"is of type {column.dtype} and shape {list(column.shape)}"
        raise ConfigError(f"{place}: column {name} {has}; must have {rule.form}, {rule.words}")
    valid = np.asarray(rule.valid(column).all(axis=tuple(range(1, column.ndim))))
    require(place, name, column, valid, f"must be {rule.words}")


def require(place: str, name: str, column: np.ndarray, valid: np.ndarray, rule: str) -> None:
    """Raise `ConfigError` about the first step `[T]` of a column that is not `valid`."""
    if not valid.all():
        step = int(valid.argmin())
        where = f", step {step}" if len(column) > 1 else ""
        raise ConfigError(f"{place}: column {name}{where}: {column[step].tolist()} {rule}")


def column_forms(spec: EnvSpec) -> dict[str, tuple[str, tuple[int, ...]]]:
    """dtype and shape of a step in each column: that of its space, and for integers the smallest that holds them. The
    rewards are indices into the spec's reward values, if it has them."""
    dtypes = {name: str(np.min_scalar_type(largest)) for name, largest in _largest(spec).items()}
    floats = {"reward": "float32"} if not spec.reward_values else {}
    floats |= {name: str(spec.observation_space.dtype) for name in OBSERVATIONS if name not in dtypes}
    floats |= {name: str(spec.action_space.dtype) for name in ACTIONS if name not in dtypes}
    shapes = dict.fromkeys(OBSERVATIONS, spec.obs_shape) | dict.fromkeys(ACTIONS, spec.action_shape)
    return {name: ((dtypes | floats)[name], shapes.get(name, ())) for name in Rollout._fields}


def _largest(spec: EnvSpec) -> dict[str, int]:
    """Largest number of each column of integers."""
    largest = {"timestep": spec.max_episode_steps - 1, "terminated": 1, "truncated": 1}
    if spec.reward_values:
        largest["reward"] = spec.num_rewards - 1
    if spec.obs_dtype == torch.int64:
        largest |= dict.fromkeys(OBSERVATIONS, spec.num_obs - 1)
    if spec.action_dtype == torch.int64:
        largest |= {"action": spec.num_actions - 1, "optimal_action": spec.num_actions}  # num_actions: it is unknown
    return largest


def step_dtypes(spec: EnvSpec) -> dict[str, torch.dtype]:
    """dtype of each column of a `Rollout` while it is played."""
    dtypes = dict.fromkeys(OBSERVATIONS, spec.obs_dtype) | dict.fromkeys(ACTIONS, spec.action_dtype)
    return dtypes | {
        "reward": torch.float32,
        "timestep": torch.int64,
        "terminated": torch.bool,
        "truncated": torch.bool,
    }


def rollout_of(spec: EnvSpec, columns: Mapping[str, np.ndarray]) -> Rollout:
    """Transitions in the dtypes of `Step` from recorded columns of any leading shape."""
    steps = {name: torch.from_numpy(np.array(columns[name], order="C")) for name in Rollout._fields}
    dtypes = step_dtypes(spec)
    if spec.reward_values:
        steps["reward"] = spec.reward_of(steps["reward"].long())
    return Rollout(**{name: step.to(dtypes[name]) for name, step in steps.items()})


def bytes_of(columns: Iterable[Any], num_steps: int = 1) -> int:
    """Bytes of this many steps of the columns `[rows, time, ...]`."""
    return num_steps * sum(column.dtype.itemsize * math.prod(column.shape[2:]) for column in columns)


def row_chunks(num_rows: int, row_size: int, group: int = 1, most: int = 0) -> Iterator[slice]:
    """Slices of rows of `row_size` bytes that cover all rows in order, with at most so many bytes each (0: a number
    that fits into any memory), but at least one `group` of rows, and never a part of one."""
    size = max(1, (most or _CHUNK) // (max(1, row_size) * group)) * group
    for start in range(0, num_rows, size):
        yield slice(start, min(start + size, num_rows))
