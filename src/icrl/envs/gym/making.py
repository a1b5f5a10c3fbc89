"""Making of Gymnasium environments: a task is a mapping of arguments, attributes and options of a reset.

{g: 9.0}                 keyword argument of `gymnasium.make`
{set.gravity: 5.0}       attribute of the environment inside all wrappers, set after it is made; dots go deeper
{scale.gravity: 0.5}     factor of such an attribute
{reset.low: -0.01}       option of every `reset`
{reset.seed: 7}          seed of every `reset`, in place of one for each episode
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from inspect import signature
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.envs.registration import load_env_creator
from gymnasium.utils.seeding import np_random

from icrl.config.modules import load_module
from icrl.config.options import MOST_SEEDS, refuse
from icrl.contracts import ConfigError
from icrl.envs.gym.registered import registered
from icrl.randomness import integers, stream_seeds, uniform

Task = dict[str, Any]
SET, SCALE, RESET = "set.", "scale.", "reset."  # how the keys of attributes and of options of a reset begin
_DRAWS_PER_TASK = 100  # until the drawing of tasks that differ is given up
_MOST_TASKS = 10**4


@dataclass(frozen=True)
class Maker:
    """How the environments of `tasks` are made. Processes receive it, so it holds plain values alone."""

    env_id: str
    tasks: list[Task]
    wrappers: list[str]  # names in `gymnasium.wrappers`, or `module:Class`; the first is the innermost
    max_episode_steps: int

    def make(self, task: int, **further: Any) -> gymnasium.Env[Any, Any]:
        """Environment of a task, with `further` arguments of `gymnasium.make`. Raises `ConfigError` for a wrong
        attribute or wrapper, and whatever the environment itself raises."""
        arguments = {key: value for key, value in self.tasks[task].items() if not key.startswith((SET, SCALE, RESET))}
        arguments |= {"max_episode_steps": self.max_episode_steps} | further
        env = gymnasium.make(registered(self.env_id), disable_env_checker=True, **arguments)  # `border.read_obs` checks
        for key, value in self.tasks[task].items():
            if key.startswith((SET, SCALE)):
                _set_attribute(env.unwrapped, key, value)
        return reduce(lambda inner, name: wrapper_of(name)(inner), self.wrappers, env)

    def made_as(self, task: int) -> Task:
        """Part of a task that changes the environment which is made."""
        return {key: value for key, value in self.tasks[task].items() if not key.startswith(RESET)}

    def reset(self, env: gymnasium.Env[Any, Any], task: int, seed: int) -> Any:
        """First observation of an episode. With `reset.seed` all episodes of the task begin alike, as drawn by the
        reset; what its steps draw from `np_random` differs between episodes."""
        options = {key.removeprefix(RESET): value for key, value in self.tasks[task].items() if key.startswith(RESET)}
        level = options.pop("seed", None)
        obs, _ = env.reset(seed=seed if level is None else level, options=options or None)
        if level is not None:
            env.unwrapped.np_random, _ = np_random(seed)
        return obs

    @property
    def known_arguments(self) -> str:
        """Names of the arguments that the environment takes, for a message."""
        names = [
            name for name in signature(creator_of(self.env_id)).parameters if name not in ("render_mode", "kwargs")
        ]
        return f"env.id={self.env_id} takes {', '.join(names) or 'no arguments'}"


def draw_tasks(given: Any) -> Any:
    """The list of tasks that `{random: {NAME: VALUES, ...}, count: n, seed: s}` stands for; any other value unchanged.

    VALUES are a range [low, high] of two numbers (integers if both are), a list of other values to choose from, or one
    value for all tasks. Each is drawn uniformly and independently. Task i is a function of (seed, i) and of the values,
    except that tasks that came before are left out. Raises `ConfigError` for a wrong form, or if there are not enough
    different tasks."""
    if not isinstance(given, Mapping):
        return given
    ranges, number, seed = given.get("random"), given.get("count"), given.get("seed", 0)
    form = (
        f"env.tasks={given}: must be a list of mappings, or {{random: {{NAME: [LOW, HIGH], ...}}, count: n, seed: s}}"
    )
    if not isinstance(ranges, Mapping) or not ranges or not given.keys() <= {"random", "count", "seed"}:
        raise ConfigError(form)
    if type(number) is not int or type(seed) is not int or not 0 < number <= _MOST_TASKS or not 0 <= seed <= MOST_SEEDS:
        raise ConfigError(f"{form} with 0 < n <= {_MOST_TASKS} and 0 <= s <= {MOST_SEEDS}")
    for name, values in ranges.items():
        wrong = values == [] or (_is_range(values) and values[0] > values[1])
        refuse(wrong, f"env.tasks.random.{name}={values}: must be [LOW, HIGH], with LOW <= HIGH, or a list of values")
    tasks = dict[str, Task]()
    for task_seed in stream_seeds(seed, _DRAWS_PER_TASK * number):
        task = {name: _drawn(values, task_seed, place) for place, (name, values) in enumerate(ranges.items())}
        tasks.setdefault(json.dumps(task), task)
        if len(tasks) == number:
            return [*tasks.values()]
    raise ConfigError(f"env.tasks.count={number}: the values make fewer different tasks, {len(tasks)} were found")


def _is_range(values: Any) -> bool:
    numbers = isinstance(values, list) and all(type(one) in (int, float) for one in values)
    return numbers and len(values) == 2


def _drawn(values: Any, seed: torch.Tensor, place: int) -> Any:
    """Value of a task with `seed` at `place` among its keys; floats have six digits, so that manifests are short."""
    if not isinstance(values, list):
        return values
    if not _is_range(values):
        return values[int(integers(seed, place, len(values)))]
    low, high = values
    if type(low) is type(high) is int:
        return low + int(integers(seed, place, high - low + 1))
    return float(f"{low + (high - low) * float(uniform(seed, place)):.6g}")


def _set_attribute(env: Any, key: str, value: Any) -> None:
    """Set the attribute that `key` names, or multiply it by `value`; dots go deeper, and numbers of an array are
    replaced in place."""
    how, *parents, name = key.split(".")
    owner = env
    for each in (*parents, name):
        kind = type(owner).__name__
        refuse(not hasattr(owner, each), f"{key}={value}: {kind} has no attribute {each}")
        owner = getattr(owner, each) if each is not name else owner
    found = getattr(owner, name)
    new = found * np.asarray(value) if f"{how}." == SCALE else value
    if isinstance(found, np.ndarray):
        found[...] = new
    else:
        setattr(owner, name, new)


def wrapper_of(name: str) -> Any:
    """Wrapper `name` of Gymnasium, or `module:Class`. Raises `ConfigError` if there is none."""
    module, _, kind = name.rpartition(":")
    found = getattr(load_module(module, "env.wrappers") if module else gymnasium.wrappers, kind, None)
    refuse(found is None, f"env.wrappers: there is no {name}: must be names in gymnasium.wrappers, or module:Class")
    return found


def creator_of(env_id: str) -> Any:
    """Class or function that makes the environment `env_id`."""
    entry_point = registered(env_id).entry_point
    return load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point
