"""Imported lives as columns of a history store: missing columns derived, all of them checked.

N lives (rows of the store), T steps, after every life is cut to the length of the shortest.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete, Space

from icrl.config.options import LARGEST, refuse
from icrl.contracts import Rollout
from icrl.data.columns import ACTIONS, OBSERVATIONS, step_dtypes
from icrl.extensions.formats.files import Arrays, Life
from icrl.extensions.formats.rules import require
from icrl.spaces import EnvSpec

_MOST_REWARDS = 64  # distinct ones that a table lists
_IMAGE = 3  # dimensions of an observation of uint8 that is one


def complete(life: Life) -> Arrays:
    """All columns of a life but unknown optimal actions. What is missing is derived: `truncated` is false; `timestep`
    counts from 0 after each end; `next_obs` is the next observation, or at an end, where the file has none, the last
    one again. Raises `ConfigError`, which names place, column and step, if lengths differ, the first step does not
    begin an episode, or columns contradict each other."""
    columns = dict(life.columns)
    length = len(columns["reward"])
    refuse(not length, f"{life.place}: has no steps")
    for name, column in columns.items():
        refuse(len(column) != length, f"{life.place}: column {name} has {len(column)} steps, and reward has {length}")
    columns.setdefault("truncated", np.zeros(length, bool))
    columns |= {name: columns[name].astype(bool) for name in ("terminated", "truncated")}
    ended = columns["terminated"] | columns["truncated"]
    starts = np.flatnonzero(np.append(True, ended[:-1]))
    timestep = np.arange(length) - np.repeat(starts, np.diff(np.append(starts, length)))
    given = columns.setdefault("timestep", timestep)
    counts = "must count from 0 at the first step and after each end"
    require(life.place, "timestep", given, given == timestep, counts)
    following = np.concatenate([columns["obs"][1:], columns["obs"][-1:]])
    going = ~ended & (np.arange(length) < length - 1)
    if (found := columns.get("next_obs")) is None:
        columns["next_obs"] = np.where(_wide(going, following), following, columns["obs"])
    else:
        shapes = f"has shape {found.shape[1:]} in a step, and obs {following.shape[1:]}"
        refuse(found.shape != following.shape, f"{life.place}: column next_obs {shapes}; must be the same")
        agrees = (found == following).reshape(length, -1).all(axis=1)
        require(life.place, "next_obs", found, agrees | ~going, "must be the next observation, inside an episode")
    return columns


def _wide(mask: np.ndarray, like: np.ndarray) -> np.ndarray:
    return mask.reshape(-1, *[1] * (like.ndim - 1))


def check_integers(life: Life) -> None:
    """Raise `ConfigError`, which names place, column and step, if a complete life has integers that `spec_of` lacks."""
    must = f"must be from 0 to {LARGEST - 1}, as all integers here are"
    for name in (*OBSERVATIONS, *ACTIONS):
        column = life.columns.get(name, life.columns["action"])
        if life.columns["action" if name in ACTIONS else name].dtype.kind in "iub":
            least = -1 if name == "optimal_action" else 0  # one that is unknown, as is NaN
            valid = ((column >= least) & (column < LARGEST) | np.isnan(column)).reshape(len(column), -1).all(axis=1)
            require(life.place, name, column, np.asarray(valid), must)


def spec_of(lives: Sequence[Arrays]) -> EnvSpec:
    """Spaces that complete lives need: the integers up to the largest, all vectors, images of bytes, actions up to the
    extremes of those taken and of known optimal ones; and a table of the rewards, if they are at most 64 numbers."""
    obs = [life[name] for life in lives for name in OBSERVATIONS]
    rewards = np.unique(np.concatenate([np.unique(life["reward"].astype(np.float32)) for life in lives]))
    values = tuple(float(str(value)) for value in rewards) if len(rewards) <= _MOST_REWARDS else ()
    longest = 1 + max(int(life["timestep"].max()) for life in lives)
    actions = [life["action"] for life in lives]
    for life in lives:
        action, best = life["action"], life.get("optimal_action", life["action"])
        if best.size == action.size:
            best = best.reshape(action.shape)
            whole = action.dtype.kind != "f"
            actions.append(np.where(best >= 0, best, action).astype(action.dtype) if whole else best)
    return EnvSpec(_space(obs, "obs", math.inf), _space(actions, "action"), values, 0, longest)


def _space(columns: Sequence[np.ndarray], name: str, bound: float = 0.0) -> Space[Any]:
    """Space of columns `[T, ...]`; floats lie within `bound`, or if it is 0 between their extremes."""
    kinds, shapes = {column.dtype.kind for column in columns}, {column.shape[1:] for column in columns}
    refuse(len(shapes) > 1, f"column {name}: has the shapes {sorted(shapes)} in different rows; must have one")
    shape = shapes.pop()
    if kinds <= set("iub"):
        if len(shape) == _IMAGE and all(column.dtype == np.uint8 for column in columns):
            return Box(0, 255, shape, np.uint8)
        largest = np.max([column.max(axis=0) for column in columns], axis=0)
        refuse(len(shape) > 1, f"column {name}: integers of shape {shape} in a step; must be one, a list, or an image")
        return MultiDiscrete(largest.astype(np.int64) + 1) if shape else Discrete(int(largest) + 1)
    shape = shape or (1,)
    low, high = (
        np.full(shape, sign * bound) if bound else find([find(column, axis=0) for column in columns], axis=0)
        for sign, find in ((-1, np.fmin.reduce), (1, np.fmax.reduce))  # which leave NaN out
    )
    return Box(np.float32(low).reshape(shape), np.float32(high).reshape(shape), shape, np.float32)


def checked(life: Life, spec: EnvSpec, steps: int) -> dict[str, torch.Tensor]:
    """First `steps` of a complete life in the dtypes of a `Rollout`. Raises `ConfigError`, which names place, column,
    step and value, for what is not in the spaces of `spec`."""
    found = {name: column[:steps] for name, column in life.columns.items()}
    for names, space, shape in (
        (OBSERVATIONS, spec.observation_space, spec.obs_shape),
        (ACTIONS, spec.action_space, spec.action_shape),
    ):
        for name in (name for name in names if name in found):
            column = found[name]
            axes = [[size for size in each if size > 1] for each in (column.shape[1:], shape)]
            fits = column[0].size == math.prod(shape) and (axes[0] == axes[1] or min(map(len, axes)) < 2)
            refuse(not fits, f"{life.place}: column {name} has shape {column.shape[1:]} in a step, not {shape}")
            found[name] = column = column.reshape(steps, *shape)
            valid = contained(space, column)
            if name == "optimal_action":
                valid |= (absent := unknown(spec, column))
                found[name] = np.where(_wide(absent, column), spec.unknown_action(torch.zeros(1)).numpy(), column)
            require(life.place, name, column, valid, f"must be in {space}")
    legal = spec.legal(torch.from_numpy(found["obs"].astype(np.float32)))
    if legal is not None:
        taken = torch.from_numpy(found["action"].astype(np.int64))
        valid = legal.gather(-1, taken[:, None])[:, 0].numpy()
        require(life.place, "action", found["action"], valid, "is not legal: see the last numbers of its observation")
    late = f"must be below {spec.max_episode_steps}, the longest episode"
    require(life.place, "timestep", found["timestep"], found["timestep"] < spec.max_episode_steps, late)
    if spec.reward_values:
        reward = torch.from_numpy(np.asarray(found["reward"], np.float32))
        nearest = spec.reward_of(spec.reward_index(reward)).numpy()
        table = f"must be one of the rewards of this world, {list(spec.reward_values)}"
        require(
            life.place, "reward", found["reward"], np.isclose(found["reward"], nearest, rtol=1e-6, atol=1e-9), table
        )
    dtypes = {name: str(dtype).removeprefix("torch.") for name, dtype in step_dtypes(spec).items()}
    tensors = {name: torch.from_numpy(np.array(found[name], dtypes[name], order="C")) for name in found}
    tensors.setdefault("optimal_action", spec.unknown_action(torch.zeros(steps)))
    return {name: tensors[name] for name in Rollout._fields}


def contained(space: Space[Any], column: np.ndarray) -> np.ndarray:
    """Mask of the steps of a column `[T, ...]` that are in `space`, `[T]` bool."""
    flat = column.reshape(len(column), -1)
    if isinstance(space, Box):
        flat = flat if flat.dtype.kind != "f" else flat.astype(np.float32)  # as it is stored
        inside = np.isfinite(flat) & (flat >= space.low.ravel()) & (flat <= space.high.ravel())
    else:
        end = space.nvec.ravel() if isinstance(space, MultiDiscrete) else int(getattr(space, "n", 0))
        inside = (flat >= 0) & (flat < end) & (flat == np.floor(flat))
    return np.asarray(inside.all(axis=1))


def unknown(spec: EnvSpec, column: np.ndarray) -> np.ndarray:
    """Mask of the steps of a column of optimal actions `[T, ...]` that stand for an unknown one, `[T]` bool: NaN, and
    of integers -1, or the mark of a store."""
    flat = column.reshape(len(column), -1)
    whole = not isinstance(spec.action_space, Box)
    return np.asarray((np.isnan(flat) | (whole & ((flat == -1) | spec.is_unknown(flat)))).all(axis=1))


def evened(lives: Sequence[Life], train: Sequence[int], say: Callable[[str], object]) -> tuple[list[Life], int]:
    """As many lives of each task of `train`, in this order, and the number of steps that all of them have. What is
    left out is said."""
    of_task = {task: [life for life in lives if life.task == task] for task in train}
    counts = {task: len(each) for task, each in of_task.items()}
    fewest = min(counts.values())
    if max(counts.values()) > fewest:
        say(
            f"{fewest} rows of each task are used, as many as the task with the fewest has; some have up to "
            f"{max(counts.values())}"
        )
    kept = [life for each in of_task.values() for life in each[:fewest]]
    lengths = [len(life.columns["reward"]) for life in kept]
    if max(lengths) > min(lengths):
        say(f"all rows are cut to {min(lengths)} steps, the length of the shortest; the longest has {max(lengths)}")
    return kept, min(lengths)
