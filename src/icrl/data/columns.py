"""Columns of histories: what is recorded of a step, and the transitions made of it."""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from icrl.contracts import Rollout
from icrl.spaces import EnvSpec

OBSERVATIONS, ACTIONS = ("obs", "next_obs"), ("action", "optimal_action")  # columns with the shape of a space
Floats, Integers, Booleans = NDArray[np.float32], NDArray[np.integer], NDArray[np.bool_]
_CHUNK = 2**27  # bytes that are in memory at a time when all of a store are read


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
