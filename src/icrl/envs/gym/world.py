"""Any registered Gymnasium environment with discrete observations and actions. A task is a set of its arguments.

Where the environments have a transition table, as those of `gymnasium.envs.toy_text` do (`P[state][action]` lists
probability, next state, reward and whether it terminates), the optimum is known as well.

N tasks, S places, A actions, K outcomes, M steps an episode, B streams.
"""

import importlib
import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from math import isqrt
from typing import Any, NamedTuple

import gymnasium
import gymnasium.error
import numpy as np
import torch
from gymnasium.spaces import Discrete
from torch import Tensor

from icrl.config.env_schema import GymnasiumConfig
from icrl.contracts import ConfigError, EnvSpec, Step
from icrl.envs.core import MapView, Outcomes, State, TensorEnv
from icrl.envs.gym.stream import in_one_line, make_task, seeded_streams
from icrl.envs.gym.vectorized import SerialEnvs, VectorizedEnv, reward_indices
from icrl.envs.planning import best_actions


class PlayedState(NamedTuple):
    """A `State` and what has been done in its episodes, by which an environment can go there: `state_index` is what was
    observed, `actions` `[B, M]` has zeros from the time step on."""

    task: Tensor
    seed: Tensor
    episode: Tensor
    state_index: Tensor
    timestep: Tensor
    actions: Tensor


class _Kind(NamedTuple):
    """What the environment of a task is like."""

    num_obs: int
    num_actions: int
    table: Mapping[int, Any] | None  # `P`, if it is over observations and actions
    starts: tuple[int, ...]  # of the table, if all are equally likely; else ()


class GymnasiumEnv(TensorEnv):
    """A task is its index in `env.tasks`, `[B, 1]`. The environments are in this process, one after the other; with
    `begin`, `follow` and `make_streams` they can be elsewhere."""

    task_columns = ("task",)

    def __init__(self, config: GymnasiumConfig) -> None:
        """`env.max_episode_steps` takes the place of the time limit that `env.id` is registered with; an environment
        that truncates by itself may do so sooner, which no table tells.

        Raises `ConfigError` for what is not registered, cannot be made or is not discrete, for tasks that are equal and
        for tasks that differ in more than their rules."""
        _check(config)
        limit = config.max_episode_steps
        tasks = [task | {"max_episode_steps": limit} for task in config.tasks]
        kinds = [_kind_of(config, number, arguments) for number, arguments in enumerate(tasks)]
        num_obs, num_actions = _agreed(config, kinds)
        starts = kinds[0].starts
        values = tuple(config.reward_values)
        self.spec = EnvSpec(num_obs, num_actions, values, config.width, limit, config.success)
        self.make_streams = partial(seeded_streams, config.id, tasks, num_obs, num_actions)
        self._num_tasks = len(tasks)
        self._fingerprints = [json.dumps([config.id, task], sort_keys=True) for task in config.tasks]
        self._streams = VectorizedEnv(self, self.begin, self.follow, self._start)
        self.has_planner = bool(starts) and all(kind.table and kind.starts == starts for kind in kinds)
        if self.has_planner:
            self.starts = torch.tensor(starts)
            rules = _rules_of([kind.table for kind in kinds if kind.table], self.spec)
            self._probability, self._place, self._reward, self._terminated = rules
            self._best = best_actions(rules, torch.tensor(values, dtype=torch.float64), limit)

    def all_tasks(self) -> Tensor:
        return torch.arange(self._num_tasks)[:, None]

    def outcomes(self, task: Tensor, state_index: Tensor, action: Tensor) -> Outcomes:
        """What the table says; those there are fewer of than K have probability 0."""
        if not self.has_planner:
            raise ConfigError(
                "env.name=gymnasium: no exact references for this env.id: it has no table P over its observations, or "
                "the starts of its tasks are not the same, all equally likely"
            )
        where = (task[..., 0], state_index, action)
        return Outcomes(self._probability[where], self._place[where], self._reward[where], self._terminated[where])

    def optimal_action(self, state: State | PlayedState) -> Tensor:
        """Of the table, for the steps that are left; see `planning.best_actions`."""
        if not self.has_planner:
            return torch.full_like(state.state_index, self.spec.num_actions)
        return self._best[state.task[..., 0], state.timestep, state.state_index].long()

    def label(self, task: Tensor) -> str:
        return f"task_{int(task[0])}"

    def fingerprint(self, tasks: Tensor) -> list[str]:
        """Which environment, and with which arguments."""
        return [self._fingerprints[task] for task in tasks[:, 0].tolist()]

    def map_view(self, task: Tensor) -> MapView:
        """A square, or all observations row by row; its goals are where the table pays for an end."""
        columns = self.spec.width or _columns(self.spec.num_obs)
        rows = -(-self.spec.num_obs // columns)
        if not self.has_planner:
            return MapView(rows, columns, ())
        probability, state_index, reward, terminated = (
            table[int(task[0])].cpu() for table in (self._probability, self._place, self._reward, self._terminated)
        )
        pays = torch.tensor(self.spec.reward_values)[reward] > 0
        return MapView(rows, columns, tuple(state_index[pays & terminated & (probability > 0)].unique().tolist()))

    def reset(self, tasks: Tensor, seeds: Tensor) -> tuple[Any, Step]:
        return self._streams.reset(tasks, seeds)

    def step(self, state: Any, action: Tensor) -> tuple[Any, Step]:
        return self._streams.step(state, action)

    def close(self) -> None:
        self._streams.close()

    def begin(self, tasks: Tensor, seeds: Tensor, obs: Tensor) -> PlayedState:
        """The state of streams that were just reset."""
        zero = torch.zeros_like(seeds)
        return PlayedState(tasks, seeds, zero, obs, zero, zero[:, None].repeat(1, self.spec.max_episode_steps))

    def follow(self, state: PlayedState, action: Tensor, obs: Tensor, ended: Tensor) -> PlayedState:
        """The state after `state`, where `action` led to `obs`, in the next episode where one `ended`; `[B]` each."""
        actions = state.actions.scatter(1, state.timestep[:, None], action[:, None]).masked_fill(ended[:, None], 0)
        timestep = (state.timestep + 1).masked_fill(ended, 0)
        return PlayedState(state.task, state.seed, state.episode + ended, obs, timestep, actions)

    def _start(self, num_streams: int) -> SerialEnvs:
        return SerialEnvs(self.make_streams(num_streams))


def _check(config: GymnasiumConfig) -> None:
    """What can be said before an environment is made."""
    values = config.reward_values
    if not config.tasks:
        raise ConfigError("env.tasks=[]: must have a mapping for each task")
    if not values or len(set(values)) < len(values):
        raise ConfigError(f"env.reward_values={values}: must be at least one number, and none twice")
    for number, task in enumerate(config.tasks):
        if "max_episode_steps" in task:
            raise ConfigError(f"env.tasks[{number}]={task}: all tasks have env.max_episode_steps, none its own")
        first = config.tasks.index(task)
        if first < number:
            raise ConfigError(f"env.tasks[{first}] and env.tasks[{number}] are both {task}: must differ")
    module, _, name = config.id.rpartition(":")
    try:
        if module:
            importlib.import_module(module)
        gymnasium.spec(name)
    except (ImportError, gymnasium.error.Error) as error:
        raise ConfigError(f"env.id={config.id}: {in_one_line(error)}") from error


def _kind_of(config: GymnasiumConfig, number: int, arguments: dict[str, Any]) -> _Kind:
    where = f"env.tasks[{number}]={config.tasks[number]}"
    try:
        made = make_task(config.id, arguments)
    except Exception as error:  # whatever a foreign environment may raise
        raise ConfigError(f"{where}: {in_one_line(error)}") from error
    with closing(made) as env:
        seen, done = env.observation_space, env.action_space
        if not (isinstance(seen, Discrete) and isinstance(done, Discrete) and seen.start == done.start == 0):
            raise ConfigError(
                f"{where}: observations {seen} and actions {done} of env.id={config.id} must be Discrete, from 0"
            )
        num_obs, num_actions = int(seen.n), int(done.n)
        table = getattr(env.unwrapped, "P", None)
        known = isinstance(table, Mapping) and {state: len(table[state]) for state in table} == dict.fromkeys(
            range(num_obs), num_actions
        )
        return _Kind(num_obs, num_actions, table if known else None, _starts_of(env.unwrapped, num_obs))


def _agreed(config: GymnasiumConfig, kinds: Sequence[_Kind]) -> tuple[int, int]:
    """Observations and actions, which all tasks must have in common."""
    for number, kind in enumerate(kinds):
        if kind[:2] != kinds[0][:2]:
            raise ConfigError(
                f"env.tasks[{number}]={config.tasks[number]}: {_told(kind)}, but env.tasks[0] has {_told(kinds[0])}; "
                "they must agree"
            )
    num_obs, num_actions = kinds[0][:2]
    if config.width and config.width**2 != num_obs:
        raise ConfigError(
            f"env.width={config.width}: its square must be the number of observations, which is {num_obs}; 0: no square"
        )
    return num_obs, num_actions


def _columns(num_cells: int) -> int:
    """Of a grid that is wider than high, by less than twice, and leaves as few cells over as can be."""
    side = isqrt(num_cells - 1) + 1
    return min(range(side, 2 * side), key=lambda columns: -num_cells % columns)


def _starts_of(env: Any, num_obs: int) -> tuple[int, ...]:
    chances = np.asarray(getattr(env, "initial_state_distrib", ()))
    starts = np.flatnonzero(chances > 0)
    if chances.shape != (num_obs,) or not np.allclose(chances[starts], 1 / max(len(starts), 1)):
        return ()
    return tuple(starts.tolist())


def _told(kind: _Kind) -> str:
    return f"{kind.num_obs} observations and {kind.num_actions} actions"


def _rules_of(tables: Sequence[Mapping[int, Any]], spec: EnvSpec) -> Outcomes:
    """The tables of all tasks, `[N, S, A, K]` each."""
    listed = [[[table[s][a] for a in range(spec.num_actions)] for s in range(spec.num_obs)] for table in tables]
    most = max(len(outcomes) for states in listed for actions in states for outcomes in actions)
    cells = np.zeros((len(tables), spec.num_obs, spec.num_actions, most, 4))
    cells[..., 2] = spec.reward_values[0]  # where there are fewer, any reward will do
    for n, s, a in np.ndindex(cells.shape[:3]):
        cells[n, s, a, : len(listed[n][s][a])] = listed[n][s][a]
    probability, state_index, value, terminated = np.moveaxis(cells, -1, 0)
    columns = (probability, state_index.astype(np.int64), reward_indices(value, spec), terminated.astype(bool))
    return Outcomes(*(torch.from_numpy(np.ascontiguousarray(column)) for column in columns))
