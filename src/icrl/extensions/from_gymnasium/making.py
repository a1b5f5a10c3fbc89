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
from gymnasium.envs.registration import EnvSpec, load_env_creator
from gymnasium.spaces import Box
from gymnasium.utils.seeding import np_random

from icrl.config.modules import load_module, reads_record
from icrl.config.options import MOST_SEEDS, refuse
from icrl.contracts import ConfigError
from icrl.extensions.from_gymnasium.guard import SECONDS, Guard
from icrl.extensions.from_gymnasium.masks import ActionMask
from icrl.randomness import integers, stream_seeds, uniform

Task = dict[str, Any]
NO_EXPERT, INFO = "none", "info"  # values of `env.expert` that name no wrapper
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
    task_visible: bool = False  # the numbers of the task are at the end of each observation
    action_mask: bool = False  # flags of legal actions are there, see `masks`
    expert: str = NO_EXPERT  # wrapper that puts an expert's action into `info`; INFO: it is there
    timeout: float = SECONDS  # seconds that a reset or a step may take

    def make(self, task: int, **further: Any) -> gymnasium.Env[Any, Any]:
        """Environment of a task, with `further` arguments of `gymnasium.make`. Raises `ConfigError` for a wrong
        attribute or wrapper, and whatever the environment itself raises."""
        arguments = {key: value for key, value in self.tasks[task].items() if not key.startswith((SET, SCALE, RESET))}
        arguments |= {"max_episode_steps": self.max_episode_steps} | further
        env = gymnasium.make(registered(self.env_id), disable_env_checker=True, **arguments)  # `border.read_obs` checks
        for key, value in self.tasks[task].items():
            if key.startswith((SET, SCALE)):
                set_attribute(env.unwrapped, key, value)
        experts = [] if self.expert in (NO_EXPERT, INFO) else [self.expert]
        env = reduce(lambda inner, name: wrapper_of(name)(inner), [*experts, *self.wrappers], env)
        env = VisibleTask(env, numbers_in(self.tasks[task])) if self.task_visible else env
        return ActionMask(env) if self.action_mask else env

    @property
    def has_expert(self) -> bool:
        return self.expert != NO_EXPERT

    def made_as(self, task: int) -> Task:
        """Part of a task that changes the environment which is made."""
        return {key: value for key, value in self.tasks[task].items() if not key.startswith(RESET)}

    def made_alike(self, task: int, other: int) -> bool:
        """True if the environment of one task can play the other, which differs in options of the reset alone."""
        made, others = ([*self.made_as(number).items()] for number in (task, other))  # in their order, which counts
        return task == other or (not self.task_visible and made == others)

    def reset(self, env: gymnasium.Env[Any, Any], task: int, seed: int) -> tuple[Any, dict[str, Any]]:
        """First observation of an episode, and `info`. With `reset.seed` all episodes of the task begin alike, as drawn
        by the reset; what its steps draw from `np_random` differs between episodes."""
        options = {key.removeprefix(RESET): value for key, value in self.tasks[task].items() if key.startswith(RESET)}
        level = options.pop("seed", None)
        first = env.reset(seed=seed if level is None else level, options=options or None)
        if level is not None:
            env.unwrapped.np_random, _ = np_random(seed)
        return first

    @property
    def known_arguments(self) -> str:
        """Names of the arguments that the environment takes, for a message."""
        every = signature(creator_of(self.env_id)).parameters
        names = [name for name in every if name not in ("render_mode", "kwargs")]
        return f"env.id={self.env_id} takes {', '.join(names) or 'no arguments'}"


class VisibleTask(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Environment of vectors with the `numbers` of its task at the end of each. Raises `ConfigError` for others."""

    def __init__(self, env: gymnasium.Env[Any, Any], numbers: list[float]) -> None:
        super().__init__(env)
        space, bounds = env.observation_space, np.full(len(numbers), np.inf, np.float32)
        if not isinstance(space, Box) or len(space.shape) != 1:
            raise ConfigError(f"env.task_visible=true needs vectors as observations, not {space}")
        low, high = (np.append(*ends).astype(np.float32) for ends in ((space.low, -bounds), (space.high, bounds)))
        self.observation_space, self._numbers = Box(low, high), np.array(numbers, np.float32)

    def observation(self, observation: Any) -> Any:
        return np.append(observation, self._numbers).astype(np.float32)


def numbers_in(task: Task) -> list[float]:
    """Values of a task, in the order of its keys. Raises `ConfigError` unless they are numbers."""
    for key, value in task.items():
        number = isinstance(value, (bool, int, float))
        refuse(not number, f"env.task_visible=true: {key}={value} of env.tasks must be a number, or true or false")
    return [float(value) for value in task.values()]


def draw_tasks(given: Any) -> Any:
    """The list of tasks that a mapping stands for; any other value unchanged, and a mapping from a file of a run too:
    it is refused, because files hold the list.

    `{random: {NAME: VALUES, ...}, count: n, seed: s}` draws each value uniformly and independently. VALUES are a range
    [low, high] of two numbers (integers if both are), a list of other values to choose from, a mapping
    `{call: MODULE:FUNCTION, ...}` for what this function returns, given the other keys and a seed, or one value for all
    tasks. Task i is a function of (seed, i) and of the values, except that tasks that came before are left out.

    `{spaced: {NAME: [low, high], ...}, count: n}` are n tasks from low to high in equal steps, of all names together.

    Raises `ConfigError` for a wrong form, or if there are not enough different tasks."""
    if not isinstance(given, Mapping) or reads_record():
        return given
    kind, keys = ("spaced", {"count"}) if "spaced" in given else ("random", {"count", "seed"})
    ranges, number, seed = given.get(kind), given.get("count"), given.get("seed", 0)
    form = (
        f"env.tasks={given}: must be a list of mappings, or {{random: {{NAME: [LOW, HIGH], ...}}, count: n, seed: s}}, "
        "or {spaced: {NAME: [LOW, HIGH], ...}, count: n}"
    )
    if not isinstance(ranges, Mapping) or not ranges or not given.keys() <= {kind, *keys}:
        raise ConfigError(form)
    if type(number) is not int or type(seed) is not int or not 0 < number <= _MOST_TASKS or not 0 <= seed <= MOST_SEEDS:
        raise ConfigError(f"{form} with 0 < n <= {_MOST_TASKS} and 0 <= s <= {MOST_SEEDS}")
    for name, values in ranges.items():
        wrong = values == [] or (_is_range(values) and values[0] > values[1])
        wrong = wrong or (kind == "spaced" and not _is_range(values))
        refuse(wrong, f"env.tasks.{kind}.{name}={values}: must be [LOW, HIGH], with LOW <= HIGH, or a list of values")
    if kind == "spaced":
        shares = [i / max(number - 1, 1) for i in range(number)]
        return [{name: _between(low, high, share) for name, (low, high) in ranges.items()} for share in shares]
    return _drawn_tasks(ranges, number, seed)


def _drawn_tasks(ranges: Mapping[str, Any], number: int, seed: int) -> list[Task]:
    """So many tasks with values that are drawn from `ranges`."""
    tasks, seeds = dict[str, Task](), stream_seeds(seed, _DRAWS_PER_TASK * number)
    for draw in range(len(seeds)):  # to iterate over the tensor itself would cut it into all its rows first
        task_seed = seeds[draw]
        task = {name: _drawn(values, task_seed, place) for place, (name, values) in enumerate(ranges.items())}
        tasks.setdefault(json.dumps(task), task)
        if len(tasks) == number:
            return [*tasks.values()]
    raise ConfigError(f"env.tasks.count={number}: the values make only {len(tasks)} different tasks")


def _is_range(values: Any) -> bool:
    numbers = isinstance(values, list) and all(type(one) in (int, float) for one in values)
    return numbers and len(values) == 2


def _drawn(values: Any, seed: torch.Tensor, place: int) -> Any:
    """Value of a task with `seed` at `place` among its keys."""
    if isinstance(values, Mapping) and "call" in values:
        return _called(values, int(integers(seed, place, MOST_SEEDS)))
    if not isinstance(values, list):
        return values
    if not _is_range(values):
        return values[int(integers(seed, place, len(values)))]
    low, high = values
    if type(low) is type(high) is int:
        return low + int(integers(seed, place, high - low + 1))
    return _between(low, high, float(uniform(seed, place)))


def _between(low: float, high: float, share: float) -> float:
    """Number at this share of the way; it has six digits, so that manifests are short."""
    return float(f"{low + (high - low) * share:.6g}")


def _called(values: Mapping[str, Any], seed: int) -> Any:
    """Value that the function `call` returns for the other `values` and the seed."""
    where = f"env.tasks: call={values['call']}"
    module, _, name = str(values["call"]).rpartition(":")
    function: Any = getattr(load_module(module, where), name, None)
    refuse(not callable(function), f"{where}: there is no such function; must be MODULE:FUNCTION or FILE.py:FUNCTION")
    with Guard(SECONDS, lambda: where, ConfigError):
        arguments = function(**{key: value for key, value in values.items() if key != "call"}, seed=seed)
        return json.loads(json.dumps(arguments))  # as the record of a run has it, where a tuple is a list


def set_attribute(env: Any, key: str, value: Any) -> None:
    """Set the attribute that `key` names, or multiply it by `value`; dots go deeper, and numbers of an array are
    replaced in place, or in a copy if it belongs to the class, and so to other environments."""
    how, *parents, name = key.split(".")
    owner, old = env, env
    for each in (*parents, name):
        kind, owner, old = type(old).__name__, old, getattr(old, each, None)
        refuse(not hasattr(owner, each), f"{key}={value}: {kind} has no attribute {each}")
    new = old * np.asarray(value) if f"{how}." == SCALE else value
    if isinstance(old, np.ndarray):
        if old is getattr(type(owner), name, None):
            old = old.copy()
            setattr(owner, name, old)
        old[...] = new
        refuse(old.dtype.kind in "iu" and (old != new).any(), f"{key}={value}: {name} holds integers, of {old.dtype}")
    else:
        setattr(owner, name, new)


def wrapper_of(name: str, where: str = "env.wrappers", others: str = "names in gymnasium.wrappers") -> Any:
    """Wrapper `name` of Gymnasium, or `module:Class`. Raises `ConfigError` if there is none, which says what the option
    `where` may be."""
    module, _, kind = name.rpartition(":")
    wrapper = getattr(load_module(module, where) if module else gymnasium.wrappers, kind, None)
    refuse(wrapper is None, f"{where}: there is no {name}: must be {others}, or module:Class")
    return wrapper


def registered(env_id: str) -> EnvSpec:
    """Gymnasium's description of `env_id`, which `gymnasium.make` takes: `Name-v0`, `module:Name-v0`, which imports the
    module first, or `module:Class`. A module is a dotted name or a Python file. Raises `ConfigError` if the module
    cannot be imported or has no such class, and Gymnasium's error if no such environment is registered."""
    refuse(env_id.endswith(".py"), f"env.id={env_id}: names no class of the file; must be FILE.py:Class")
    module, _, name = env_id.rpartition(":")
    module_of_id = load_module(module, f"env.id={env_id}") if module else None
    if module_of_id and isinstance(getattr(module_of_id, name, None), type):
        return EnvSpec(f"{name}-v0", entry_point=f"{module_of_id.__name__}:{name}")
    try:
        return gymnasium.spec(name)
    except gymnasium.error.Error as error:
        if not module_of_id:
            raise
        lacks = f"{module} has no class {name}, and registers no environment of this name"
        raise ConfigError(f"env.id={env_id}: {lacks}") from error


def creator_of(env_id: str) -> Any:
    """Class or function that makes the environment `env_id`."""
    entry_point = registered(env_id).entry_point
    return load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point
