"""Any Gymnasium environment as one of our worlds.

A task is a mapping, see `making.py`. If the environments have a transition table, as those of
`gymnasium.envs.toy_text` do (`P[state][action]` lists probability, next state, reward and whether it terminates), the
optimum is known as well. N tasks, S states, A actions, K outcomes, M steps an episode, B streams.
"""

import json
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from copy import copy
from functools import cached_property, partial
from math import isqrt
from typing import Annotated, Any, Literal, NamedTuple, Self, cast

import gymnasium
import gymnasium.error
import numpy as np
import torch
from gymnasium.spaces import Discrete, Space
from pydantic import BeforeValidator
from torch import Tensor

from icrl.config.modules import describe_error
from icrl.config.options import OneOrMore, Text, option, refuse
from icrl.contracts import ConfigError, PipelineError, Step
from icrl.envs.core import EXPERT, NAME, TASK_VISIBLE, EnvConfig, MapView, Outcomes, State, world
from icrl.extensions.exact.tables import TableEnv, same_tasks
from icrl.extensions.from_gymnasium.border import action_space, described, obs_space, read_expert, read_obs, rows_of
from icrl.extensions.from_gymnasium.guard import SECONDS, Guard
from icrl.extensions.from_gymnasium.making import (
    INFO,
    NO_EXPERT,
    RESET,
    Maker,
    Task,
    draw_tasks,
    numbers_in,
    registered,
    wrapper_of,
)
from icrl.extensions.from_gymnasium.streams import GymnasiumStreams, PlayedState, reward_indices
from icrl.extensions.from_gymnasium.workers import WorkerStreams
from icrl.spaces import EnvSpec


class GymnasiumConfig(EnvConfig):
    name: Literal["gymnasium"] = option("gymnasium", NAME)
    id: Text = option(
        "FrozenLake-v1",
        "a registered Gymnasium environment; `module:Name-v0` imports the module first; a class of your own: "
        "`FILE.py:Class`",
    )
    tasks: Annotated[list[Task], BeforeValidator(draw_tasks), "a list of mappings, or the mapping of a draw"] = option(
        [],
        "a mapping for each task: arguments of `gymnasium.make`, `set.NAME` for an attribute of the environment, "
        "`scale.NAME` for a factor that multiplies one, `reset.NAME` for an option of its resets, `reset.seed` for "
        "the seed of all of them; or {random: {NAME: [LOW, HIGH], ...}, count: n, seed: s}, which draws n tasks, or "
        "{spaced: {NAME: [LOW, HIGH], ...}, count: n}, n tasks in equal steps",
    )
    task_visible: bool = option(False, TASK_VISIBLE)
    wrappers: Annotated[list[Text], OneOrMore, "a list of names"] = option(
        [], "wrappers around the environment, the innermost first: names in gymnasium.wrappers, or module:Class"
    )
    reward_values: Annotated[list[float] | None, "null or a list of floats"] = option(
        None,
        "list of all possible rewards ([]: any number; null: those of the transition tables; without tables, [0, 1] "
        "if observations and actions are single integers, otherwise any number)",
    )
    success: Literal["reward", "goal", "end", "survival", "return", "final_reward"] = option(
        "goal",
        "definition of a successful episode. reward: a positive reward; goal: a termination with a positive reward; "
        "end: a termination; survival: no termination before env.max_episode_steps; return: a return of at least "
        "env.success_return; final_reward: a last reward of at least that",
    )
    success_return: float = option(
        0.0, "least return of a successful episode if env.success is return, or last reward if it is final_reward"
    )
    action_mask: bool = option(
        False,
        "append `info['action_mask']` to observations, with 1 for each legal action, and take only legal actions; "
        "needs Discrete actions, and observations that are integers or vectors",
    )
    expert: Text = option(
        "none",
        "source of the actions of an expert that knows the task: `info['expert_action']` of the environment (info) "
        "or of a wrapper directly around it (module:Class); none: there is no expert",
    )
    timeout: float = option(
        SECONDS,
        "longest time in seconds that a reset or a step may take; after that the program ends",
        gt=0,
        le=10**6,
        may_change=True,
    )
    num_workers: int = option(
        0,
        "worker processes that step the environments of stage one and of trials (0: the training process steps them)",
        ge=0,
        le=10**4,
        may_change=True,
    )
    width: int = option(
        0, "side of the square room whose cells the observations number, row by row (0: no room)", ge=0, le=1000
    )

    @classmethod
    def modules_in(cls, values: Mapping[str, Any]) -> dict[str, str]:
        given = str(values.get("id", ""))
        return {f"env.id={given}": given.rpartition(":")[0]}

    def fingerprint(self, tasks: list[list[float]]) -> list[str]:
        """From the options alone, because to make an environment may run any code."""
        world = [self.id, *([self.wrappers] if self.wrappers else [])]
        return [json.dumps([*world, self.tasks[int(row)]], sort_keys=True) for (row,) in tasks]


class _Rules(NamedTuple):
    """Spaces and rules of the environment of a task."""

    obs: Space[Any]
    actions: Space[Any]
    table: Mapping[int, Any] | None  # `P`, if it is over observations and actions
    starts: tuple[int, ...]  # of the table, if all are equally likely; else ()


@world("gymnasium", GymnasiumConfig)
class GymnasiumEnv(TableEnv):
    """A task is its index in `env.tasks`, `[B, 1]`. The environments run in this process, one after the other, or in
    worker processes."""

    def __init__(self, config: GymnasiumConfig) -> None:
        """`env.max_episode_steps` replaces the time limit that `env.id` is registered with. An environment may truncate
        sooner by itself, which no table says. Raises `ConfigError` unless `env.id` is registered, can be made and has
        spaces that a spec can hold, the same for all tasks."""
        _check_options(config)
        limit, shown = config.max_episode_steps, (config.task_visible, config.action_mask, config.expert)
        maker = Maker(config.id, config.tasks, config.wrappers, limit, *shown, config.timeout)
        made = [json.dumps(maker.made_as(number)) for number in range(len(config.tasks))]
        rules_of = {one: _inspect(maker, made.index(one)) for one in dict.fromkeys(made)}
        tasks = [rules_of[one] for one in made]
        obs, actions, _, starts = tasks[0]
        told = [described(task.obs, task.actions) for task in tasks]
        for number, spaces in enumerate(told):
            where = f"env.tasks[{number}]={config.tasks[number]}"
            refuse(spaces != told[0], f"{where}: {spaces}, but env.tasks[0] has {told[0]}; they must agree")
        _check_width(config, obs)
        tables = [task.table for task in tasks if task.table]
        values = _reward_values(config, tables, isinstance(obs, Discrete) and isinstance(actions, Discrete))
        more = {"success_return": config.success_return, "action_mask": config.action_mask}
        self.spec = EnvSpec(obs, actions, values, config.width, limit, config.success, **more)
        self._make_streams = partial(GymnasiumStreams, maker, self.spec)
        self._streams: GymnasiumStreams | WorkerStreams = self._make_streams()
        self._has_table = bool(starts and values) and all(task.table and task.starts == starts for task in tasks)
        self._config, self._has_expert = config, maker.has_expert
        self.has_planner = self._has_table or self._has_expert
        self.best_name = EXPERT if self._has_expert else self.best_name
        if self._has_table:
            self.starts = torch.tensor(starts)
            self.set_rules(rules := _stack_tables(tables, self.spec))
            _warn_of_same([(one, other) for one, other in same_tasks(rules, self.starts) if made[one] != made[other]])

    @property
    def is_exact(self) -> bool:
        # Of several starts a seed of the resets plays one alone, over which the table would take the mean.
        seeded = any(key.startswith(RESET) for task in self._config.tasks for key in task)
        return self._has_table and super().is_exact and not (seeded and len(self.starts) > 1)

    def all_tasks(self) -> Tensor:
        return torch.arange(len(self._config.tasks))[:, None]

    def task_numbers(self, tasks: Tensor) -> Tensor:
        """The values of the mappings, in their order."""
        given = self._config.tasks
        return torch.tensor([numbers_in(given[task]) for task in tasks[:, 0].tolist()], device=tasks.device)

    def outcomes(self, task: Tensor, state_index: Tensor, action: Tensor) -> Outcomes:
        refuse(
            not self._has_table,
            "env.name=gymnasium: no exact references for this env.id: it has no table P over its observations, or the "
            "tasks do not all start in the same, equally likely states",
        )
        return super().outcomes(task, state_index, action)

    def optimal_action(self, state: State | PlayedState) -> Tensor:
        """Unknown without a table; actions of an expert are in the steps alone."""
        if not self._has_table:
            return self.spec.unknown_action(state.timestep)
        return super().optimal_action(cast(State, state))  # a `PlayedState` has the fields that are read

    def fingerprint(self, tasks: Tensor) -> list[str]:
        return self._config.fingerprint(tasks.tolist())

    def map_view(self, task: Tensor) -> MapView:
        """Square of the observations, or a grid of them row by row that is wider than high, by less than a factor of
        two, and has as few empty cells as possible. Its goals are states that pay in the table. Observations that are
        no single integers have one cell together."""
        if not isinstance(self.spec.observation_space, Discrete):
            return MapView(1, 1, ())
        num_obs = self.spec.num_obs
        side = isqrt(num_obs - 1) + 1
        columns = self.spec.width or min(range(side, 2 * side), key=lambda width: -num_obs % width)
        return MapView(-(-num_obs // columns), columns, self.rewarded(task) if self._has_table else ())

    def cell(self, obs: Tensor, action: Tensor) -> Tensor:
        return obs if isinstance(self.spec.observation_space, Discrete) else torch.zeros(len(obs), dtype=torch.long)

    @cached_property
    def not_filmed(self) -> str:
        if isinstance(self.spec.observation_space, Discrete):
            return ""  # a map takes the place of pictures
        try:
            self._make_streams().pictures(0, 0, 0, [], [])
        except PipelineError as error:
            return str(error)
        return ""

    def pictures(self, task: Tensor, seed: int, episode: int, obs: Tensor, action: Tensor) -> list[Any]:
        """Pictures by the environment's own `render()`."""
        return self._make_streams().pictures(int(task[0]), seed, episode, rows_of(obs), rows_of(action))

    def reset(self, tasks: Tensor, seeds: Tensor) -> tuple[Any, Step]:
        return self._labelled(*self._streams.reset(tasks, seeds))

    def step(self, state: Any, action: Tensor) -> tuple[Any, Step]:
        return self._labelled(*self._streams.step(state, action))

    def _labelled(self, state: Any, step: Step) -> tuple[Any, Step]:
        """A state, and its step with the best action, which is the expert's if there is one."""
        return state, step if self._has_expert else step._replace(optimal_action=self.optimal_action(state))

    def in_workers(self) -> Self:
        if not self._config.num_workers:
            return self
        played = copy(self)
        played._streams = WorkerStreams(self._make_streams, self._config.num_workers, self._config.timeout)
        return played

    def close(self) -> None:
        self._streams.close()


def _check_options(config: GymnasiumConfig) -> None:
    """Rules of the options that need no environment."""
    values, tasks = config.reward_values or [], config.tasks
    both = config.task_visible and config.action_mask
    refuse(both, "env.task_visible=true and env.action_mask=true both append to observations: one must be false")
    refuse(not tasks, "env.tasks=[]: must have a mapping for each task")
    refuse(len(set(values)) < len(values), f"env.reward_values={values}: must have no duplicates")
    for number, task in enumerate(tasks):
        here, first = f"env.tasks[{number}]", tasks.index(task)
        clock = "give env.max_episode_steps for all tasks instead of here"
        refuse("max_episode_steps" in task, f"{here}={task}: {clock}")
        refuse(first < number, f"env.tasks[{first}] and {here} are both {task}: must differ")
    other = next((task for task in tasks if config.task_visible and list(task) != list(tasks[0])), None)
    both = f"env.tasks with {tasks[0]} and {other}"
    refuse(other is not None, f"env.task_visible=true: {both}: all must have the same keys, in the same order")
    try:
        registered(config.id)
    except gymnasium.error.Error as error:
        raise ConfigError(f"env.id={config.id}: {describe_error(error)}") from error
    for wrapper in config.wrappers:
        wrapper_of(wrapper)
    if config.expert not in (NO_EXPERT, INFO):
        wrapper_of(config.expert, "env.expert", f"{NO_EXPERT}, {INFO}")


def _check_width(config: GymnasiumConfig, obs: Space[Any]) -> None:
    """Refuse a room that the observations do not number."""
    if not isinstance(obs, Discrete):
        refuse(config.width, f"env.width={config.width}: observations {obs} do not number cells; give env.width=0")
        return
    side = isqrt(obs.n) if isqrt(obs.n) ** 2 == obs.n else 0
    allowed = f"its square must be the number of observations, which is {obs.n}; 0: no square"
    refuse(config.width not in (0, obs.n**0.5), f"env.width={config.width}: {allowed}; give env.width={side}")


def _reward_values(config: GymnasiumConfig, tables: Sequence[Mapping[int, Any]], counted: bool) -> tuple[float, ...]:
    """Rewards of the spec, () for any number; `counted`: observations and actions are single integers. Raises
    `ConfigError` for what the transition tables show to be wrong."""
    outcomes = (outcome for table in tables for of_state in table.values() for outcome in of_state.values())
    paid = sorted({float(value) for each in outcomes for _, _, value, _ in each})
    given = config.reward_values
    if given is None:
        given = paid if len(tables) == len(config.tasks) else [0.0, 1.0] if counted else []
    if given:
        all_paid = f"give env.reward_values={paid}".replace(", ", ",")
        lacking = [f"{value:g}" for value in paid if not np.isclose(value, given, rtol=1e-6, atol=1e-9).any()]
        refuse(lacking, f"env.reward_values={given}: lacks {', '.join(lacking)}, rewards of this world: {all_paid}")
        no_success = config.success in ("reward", "goal") and max(given) <= 0
        alternatives = "give env.success=end, or survival, or return with env.success_return"
        refuse(no_success, f"env.success={config.success} needs a positive reward, and there is none: {alternatives}")
    return tuple(given)


def _inspect(maker: Maker, number: int) -> _Rules:
    """Make the environment of a task once, to see what it is."""
    where = f"env.tasks[{number}]={maker.tasks[number]}"
    with Guard(maker.timeout, lambda: where, ConfigError), ExitStack() as stack:
        try:
            env = stack.enter_context(closing(maker.make(number)))
        except TypeError as error:
            raise ConfigError(f"{describe_error(error)}; {maker.known_arguments}") from error
        try:
            obs, actions = obs_space(env.observation_space, maker.wrappers), action_space(env.action_space)
            if maker.action_mask or maker.has_expert:
                seen, info = maker.reset(env, number, 0)  # raises without a mask
                if maker.has_expert:
                    spec = EnvSpec(obs, actions, (), 0, maker.max_episode_steps, action_mask=maker.action_mask)
                    read_expert(info, spec, read_obs(seen, obs))
        except ValueError as error:
            raise ConfigError(f"env.id={maker.env_id}: {error}") from error
        table, starts = None, ()
        plain = not maker.wrappers  # else its rules may be others than those of its table
        if plain and isinstance(obs, Discrete) and isinstance(actions, Discrete):
            table, starts = _table_of(env.unwrapped, int(obs.n), int(actions.n))
        return _Rules(obs, actions, table, starts)


def _table_of(env: Any, num_obs: int, num_actions: int) -> tuple[Mapping[int, Any] | None, tuple[int, ...]]:
    """Transition table and starts of an environment, see `_Rules`."""
    table, sizes = getattr(env, "P", None), dict.fromkeys(range(num_obs), num_actions)
    if not isinstance(table, Mapping) or {s: len(table[s]) for s in table} != sizes:
        table = None
    chances = np.asarray(getattr(env, "initial_state_distrib", ()))
    starts = np.flatnonzero(chances > 0)
    alike = chances.shape == (num_obs,) and np.allclose(chances[starts], 1 / max(len(starts), 1))
    return table, tuple(starts.tolist()) if alike else ()


def _warn_of_same(pairs: list[tuple[int, int]]) -> None:
    if pairs:
        one, other = pairs[0]
        told = f"env.tasks[{one}] and [{other}] have the same rules wherever one can get to"
        more = f", and {len(pairs) - 1} further tasks those of an earlier one" if pairs[1:] else ""
        warnings.warn(f"{told}{more}: one of them may be held out and the other trained on", stacklevel=3)


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
