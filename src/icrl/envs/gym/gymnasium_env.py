"""Any registered Gymnasium environment with discrete observations and actions as one of our worlds.

A task is a set of keyword arguments. If the environments have a transition table, as those of
`gymnasium.envs.toy_text` do (`P[state][action]` lists probability, next state, reward and whether it terminates), the
optimum is known as well. N tasks, S states, A actions, K outcomes, M steps an episode, B streams.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from inspect import signature
from math import isqrt
from typing import Any, Literal, NamedTuple

import gymnasium
import gymnasium.error
import numpy as np
import torch
from gymnasium.spaces import Discrete
from torch import Tensor

from icrl.config.options import EnvId, option, refuse
from icrl.contracts import ConfigError, Step
from icrl.envs.core import NAME, EnvConfig, MapView, Outcomes, State, TensorEnv
from icrl.envs.exact import best_actions
from icrl.envs.gym.registered import registered
from icrl.envs.gym.streams import GymnasiumStreams, PlayedState, creator_of, describe_error, reward_indices
from icrl.spaces import EnvSpec, discrete_spec


class GymnasiumConfig(EnvConfig):
    name: Literal["gymnasium"] = option("gymnasium", NAME)
    id: EnvId = option(
        "FrozenLake-v1",
        "a registered Gymnasium environment; `module:Name-v0` imports the module first; a class of your own: "
        "`FILE.py:Class`",
    )
    tasks: list[dict[str, Any]] = option([], "arguments of `gymnasium.make`, a mapping for each task")
    reward_values: list[float] = option([0.0, 1.0], "list of all possible rewards")
    success: Literal["reward", "goal", "end", "survival", "return"] = option(
        "goal",
        "definition of a successful episode. reward: a positive reward; goal: an end with a positive "
        "reward; end: an end; survival: no end before env.max_episode_steps; return: a return of at least "
        "env.success_return",
    )
    success_return: float = option(0.0, "least return of a successful episode if env.success is return")
    width: int = option(
        4, "side of the square room whose cells the observations number, row by row (0: no room)", ge=0, le=1000
    )


class _Task(NamedTuple):
    num_obs: int
    num_actions: int
    table: Mapping[int, Any] | None  # `P`, if it is over observations and actions
    starts: tuple[int, ...]  # of the table, if all are equally likely; else ()


class GymnasiumEnv(TensorEnv):
    """A task is its index in `env.tasks`, `[B, 1]`. The environments run in this process, one after the other; those
    of `make_streams` can run elsewhere."""

    task_columns = ("task",)

    def __init__(self, config: GymnasiumConfig) -> None:
        """`env.max_episode_steps` replaces the time limit that `env.id` is registered with. An environment may truncate
        sooner by itself, which no table says. Raises `ConfigError` unless `env.id` is registered, can be made and is
        discrete, and tasks differ in their rules alone."""
        _check_options(config)
        limit, values = config.max_episode_steps, tuple(config.reward_values)
        arguments = [task | {"max_episode_steps": limit} for task in config.tasks]
        tasks = [_inspect(config, number, each) for number, each in enumerate(arguments)]
        num_obs, num_actions, _, starts = tasks[0]
        told = [f"{task.num_obs} observations and {task.num_actions} actions" for task in tasks]
        for number, sizes in enumerate(told):
            where = f"env.tasks[{number}]={config.tasks[number]}"
            refuse(sizes != told[0], f"{where}: {sizes}, but env.tasks[0] has {told[0]}; they must agree")
        side = isqrt(num_obs) if isqrt(num_obs) ** 2 == num_obs else 0
        allowed = f"its square must be the number of observations, which is {num_obs}; 0: no square"
        refuse(config.width not in (0, num_obs**0.5), f"env.width={config.width}: {allowed}; give env.width={side}")
        _check_rewards(config, [task.table for task in tasks if task.table])
        sizes = (num_obs, num_actions, values, config.width, limit, config.success)
        self.spec = discrete_spec(*sizes, success_return=config.success_return)
        self.make_streams = partial(GymnasiumStreams, config.id, arguments, self.spec)
        self._streams = self.make_streams()
        self._fingerprints = [json.dumps([config.id, task], sort_keys=True) for task in config.tasks]
        self.has_planner = bool(starts) and all(task.table and task.starts == starts for task in tasks)
        if self.has_planner:
            self.starts = torch.tensor(starts)
            rules = _stack_tables([task.table for task in tasks if task.table], self.spec)
            self._probability, self._next_state, self._reward, self._terminated = rules
            self._best = best_actions(rules, torch.tensor(values, dtype=torch.float64), limit)

    def all_tasks(self) -> Tensor:
        return torch.arange(len(self._fingerprints))[:, None]

    def outcomes(self, task: Tensor, state_index: Tensor, action: Tensor) -> Outcomes:
        """Outcomes in the table; if there are fewer than K, the others have probability 0."""
        refuse(
            not self.has_planner,
            "env.name=gymnasium: no exact references for this env.id: it has no table P over its observations, or the "
            "starts of its tasks are not the same, all equally likely",
        )
        where = (task[..., 0], state_index, action)
        return Outcomes(self._probability[where], self._next_state[where], self._reward[where], self._terminated[where])

    def optimal_action(self, state: State | PlayedState) -> Tensor:
        """Best action for the steps that are left, from the table; see `best_actions`."""
        if not self.has_planner:
            return torch.full_like(state.inner, self.spec.num_actions)
        return self._best[state.task[..., 0], state.timestep, state.inner].long()

    def label(self, task: Tensor) -> str:
        return f"task_{int(task[0])}"

    def fingerprint(self, tasks: Tensor) -> list[str]:
        return [self._fingerprints[task] for task in tasks[:, 0]]

    def map_view(self, task: Tensor) -> MapView:
        """Square of the observations, or a grid of them row by row that is wider than high, by less than a factor of
        two, and has as few empty cells as possible. Its goals are ends that pay in the table."""
        num_obs = self.spec.num_obs
        side = isqrt(num_obs - 1) + 1
        columns = self.spec.width or min(range(side, 2 * side), key=lambda width: -num_obs % width)
        goals: tuple[int, ...] = ()
        if self.has_planner:
            number = int(task[0])
            pays = torch.tensor(self.spec.reward_values, device=self._reward.device)[self._reward[number]] > 0
            reached = pays & self._terminated[number] & (self._probability[number] > 0)
            goals = tuple(self._next_state[number][reached].unique().tolist())
        return MapView(-(-num_obs // columns), columns, goals)

    def pictures(self, task: Tensor, seed: int, episode: int, obs: Tensor, action: Tensor) -> list[Any]:
        """Pictures by the environment's own `render()`."""
        return self._streams.pictures(int(task[0]), seed, episode, obs.tolist(), action.tolist())

    def reset(self, tasks: Tensor, seeds: Tensor) -> tuple[Any, Step]:
        state, step = self._streams.reset(tasks, seeds)
        return state, step._replace(optimal_action=self.optimal_action(state))

    def step(self, state: Any, action: Tensor) -> tuple[Any, Step]:
        state, step = self._streams.step(state, action)
        return state, step._replace(optimal_action=self.optimal_action(state))

    def close(self) -> None:
        self._streams.close()


def _check_options(config: GymnasiumConfig) -> None:
    """Rules of the options that need no environment."""
    values, tasks = config.reward_values, config.tasks
    refuse(not tasks, "env.tasks=[]: must have a mapping for each task")
    valid = values and len(set(values)) == len(values)
    refuse(not valid, f"env.reward_values={values}: must have at least one number, and none twice")
    for number, task in enumerate(tasks):
        here, first = f"env.tasks[{number}]", tasks.index(task)
        clock = "give env.max_episode_steps for all tasks instead of here"
        refuse("max_episode_steps" in task, f"{here}={task}: {clock}")
        refuse(first < number, f"env.tasks[{first}] and {here} are both {task}: must differ")
    try:
        registered(config.id)
    except gymnasium.error.Error as error:
        raise ConfigError(f"env.id={config.id}: {describe_error(error)}") from error


def _check_rewards(config: GymnasiumConfig, tables: Sequence[Mapping[int, Any]]) -> None:
    """Rules of the rewards, as far as the transition tables of the tasks tell them."""
    outcomes = (outcome for table in tables for of_state in table.values() for outcome in of_state.values())
    paid = sorted({float(value) for each in outcomes for _, _, value, _ in each})
    given, all_paid = config.reward_values, f"give env.reward_values={paid}".replace(", ", ",")
    lacking = [f"{value:g}" for value in paid if not np.isclose(value, given, rtol=1e-6, atol=1e-9).any()]
    refuse(lacking, f"env.reward_values={given}: lacks {', '.join(lacking)}, rewards of this world: {all_paid}")
    no_success = config.success in ("reward", "goal") and max(given) <= 0
    alternatives = "give env.success=end, or survival, or return with env.success_return"
    refuse(no_success, f"env.success={config.success} needs a positive reward, and there is none: {alternatives}")


def _inspect(config: GymnasiumConfig, number: int, arguments: dict[str, Any]) -> _Task:
    """Make the environment of a task once, to see what it is."""
    where = f"env.tasks[{number}]={config.tasks[number]}"
    try:
        made = gymnasium.make(registered(config.id), disable_env_checker=True, **arguments)
    except Exception as error:  # an environment from outside may raise anything
        names = [name for name in signature(creator_of(config.id)).parameters if name not in ("render_mode", "kwargs")]
        known = f"; env.id={config.id} takes {', '.join(names) or 'no arguments'}" if type(error) is TypeError else ""
        raise ConfigError(f"{where}: {describe_error(error)}{known}") from error
    with closing(made) as env:
        obs, actions = env.observation_space, env.action_space
        if not (isinstance(obs, Discrete) and isinstance(actions, Discrete) and obs.start == actions.start == 0):
            found = f"observations {obs} and actions {actions}"
            raise ConfigError(f"{where}: {found} of env.id={config.id} must be Discrete, from 0")
        sizes, table = dict.fromkeys(range(obs.n), int(actions.n)), getattr(env.unwrapped, "P", None)
        if not isinstance(table, Mapping) or {state: len(table[state]) for state in table} != sizes:
            table = None
        chances = np.asarray(getattr(env.unwrapped, "initial_state_distrib", ()))
        starts = np.flatnonzero(chances > 0)
        alike = chances.shape == (obs.n,) and np.allclose(chances[starts], 1 / max(len(starts), 1))
        return _Task(int(obs.n), int(actions.n), table, tuple(starts.tolist()) if alike else ())


def _stack_tables(tables: Sequence[Mapping[int, Any]], spec: EnvSpec) -> Outcomes:
    """Tables of all tasks, `[N, S, A, K]` each."""
    shape = (len(tables), spec.num_obs, spec.num_actions)
    num_outcomes = max(len(tables[n][s][a]) for n, s, a in np.ndindex(shape))
    cells = np.zeros((*shape, num_outcomes, 4))
    cells[..., 2] = spec.reward_values[0]  # of outcomes that fill up: any reward will do
    for n, s, a in np.ndindex(shape):
        cells[n, s, a, : len(tables[n][s][a])] = tables[n][s][a]
    probability, state_index, value, terminated = np.moveaxis(cells, -1, 0)
    columns = (probability, state_index.astype(np.int64), reward_indices(value, spec), terminated.astype(bool))
    return Outcomes(*(torch.from_numpy(np.ascontiguousarray(column)) for column in columns))
