"""Our tensor environments as Gymnasium environments, with numpy arrays in and out. B streams.

Stream i of `BatchedEnv` after `reset(seed=s)` equals `SingleEnv` after `reset(seed=s + i)`, step by step. A seed
determines all randomness of a stream: the starts of its episodes, the outcomes of its steps and, unless one is given,
its task. A reset without a seed starts the next episode of the same stream.
"""

from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import Any, TypeVar

import numpy as np
import torch
from gymnasium import Env, logger
from gymnasium.error import InvalidAction, ResetNeeded
from gymnasium.utils.seeding import np_random
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray
from pydantic import ValidationError
from torch import Tensor

from icrl.config.options import in_words
from icrl.envs import env_options, make_env
from icrl.envs.core import State, TensorEnv, choose_rows
from icrl.envs.rollout import exact_rewards
from icrl.extensions.maps.render import Frames, pictures_of, render_cells
from icrl.extensions.maps.tasks import read_task
from icrl.randomness import integers

Bools = NDArray[np.bool_]
Column = NDArray[Any]  # observations or actions, [B, ...] in the dtype of their space
Infos = dict[str, Any]
StateType = TypeVar("StateType")

_NO_LIMIT = 2**62  # steps of an episode
_TASK_DRAW = 2**62  # counter of the draw of the task; the counters of episodes never reach it
_NO_ACTION = -1  # the last action of a stream that has not acted yet


class BatchedEnv(VectorEnv[Column, Column, NDArray[Any]]):
    """B streams of `core` stepped as one batch of tensors, with auto-reset in the same step. `infos["timestep"]` counts
    the steps since the last reset. `tasks` are `[B, task_dim]`; None draws them from the seeds."""

    metadata: Infos = {"render_modes": ["rgb_array"], "render_fps": 4, "autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(
        self, core: TensorEnv, num_envs: int, tasks: Tensor | None = None, render_mode: str | None = None
    ) -> None:
        if render_mode not in (None, "rgb_array"):
            raise ValueError(f"render_mode={render_mode!r}: must be 'rgb_array' or None")
        self.num_envs, self.render_mode = num_envs, render_mode
        self.single_observation_space = deepcopy(core.spec.observation_space)  # has random numbers of its own
        self.single_action_space = deepcopy(core.spec.action_space)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.core, self._tasks = core, tasks
        self._actions = np.full((num_envs, *core.spec.action_shape), _NO_ACTION)
        self._state: State | None = None

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Infos | None = None
    ) -> tuple[Column, Infos]:
        """Stream i takes seed + i or item i of a list. `options["reset_mask"]`, bool `[B]`, leaves the others as they
        are."""
        super().reset(seed=seed if isinstance(seed, int) else None)
        seeds, where = seeds_of(seed, self.num_envs), reset_mask(options or {}, self.num_envs)
        if self._state is None:
            if not where.all():
                raise ResetNeeded("the first reset() must start every stream: leave out options['reset_mask']")
            self._state = self._start(seeds)
        else:
            self._state = self.core.next_episode(self._state, torch.from_numpy(where))
            if seed is not None:
                fresh = where & np.array([each is not None for each in seeds])
                pairs = zip(self._start(seeds), self._state, strict=True)
                chosen = torch.from_numpy(fresh)
                self._state = State(*(choose_rows(chosen, new, old) for new, old in pairs))
                self._actions[fresh] = _NO_ACTION
        return self._observe(self._state), {"timestep": np.zeros(self.num_envs, np.int64), "_timestep": where}

    def step(self, actions: Column) -> tuple[Column, NDArray[Any], Bools, Bools, Infos]:
        state = started(self._state)
        actions = np.asarray(actions)
        if not self.action_space.contains(actions):
            raise InvalidAction(f"actions={actions!r}: must be {self.num_envs} actions of {self.single_action_space}")
        self._actions = actions.copy()
        self._state, step = self.core.step(state, torch.from_numpy(actions).to(self.core.spec.action_dtype))
        terminated, truncated = step.terminated.numpy(), step.truncated.numpy()
        infos: Infos = {"timestep": self._state.timestep.numpy().copy(), "_timestep": np.ones(self.num_envs, bool)}
        done = terminated | truncated
        if done.any():
            final_info = {"timestep": np.where(done, state.timestep.numpy() + 1, 0), "_timestep": done.copy()}
            infos |= final_infos(done, step.final_obs.numpy()[done], final_info)
        rewards = exact_rewards(self.core.spec, step.reward.numpy())
        return self._observe(self._state), rewards, terminated, truncated, infos

    def render(self, obs: Column | None = None) -> tuple[Frames, ...] | None:
        """Picture of every stream, now or at an earlier `obs` `[B, ...]`: the world's own, or a map with the agent (in
        a bandit, the last arm pulled); B frames `[H, W, 3]`."""
        state = started(self._state)
        if self.render_mode is None:
            logger.warn("render() shows nothing: make the environment with render_mode='rgb_array'")
            return None
        obs = self._observe(state) if obs is None else obs
        seen, actions = torch.from_numpy(obs), torch.from_numpy(self._actions)
        rows = zip(state.task, seen, actions, strict=True)
        drawn = [pictures_of(self.core, task, 0, 0, one[None], action[None][:0]) for task, one, action in rows]
        if all(drawn):
            return tuple(pictures[0] for pictures in drawn)
        cells = self.core.cell(seen, actions).split(1)
        views = map(self.core.map_view, state.task)
        return tuple(render_cells(cell.numpy(), view)[0] for cell, view in zip(cells, views, strict=True))

    def _observe(self, state: State) -> Column:
        return self.core.observation(state).numpy().copy()  # a copy: the caller may write to it

    def _start(self, seeds: Sequence[int | None]) -> State:
        """State of every stream at its beginning; np_random checks each seed, and draws one for None."""
        drawn = stream_seeds(np_random(seed)[1] for seed in seeds)
        tasks = self._tasks
        if tasks is None:
            all_tasks = self.core.all_tasks()
            tasks = all_tasks[integers(drawn, _TASK_DRAW, len(all_tasks))]
        return self.core.reset(tasks, drawn)[0]


class SingleEnv(Env[Any, Any]):
    """The one stream of `batched`. `info["timestep"]` counts the steps since the last reset."""

    metadata: Infos = {"render_modes": ["rgb_array"], "render_fps": 4}

    def __init__(self, batched: BatchedEnv) -> None:
        self._batched, self.render_mode = batched, batched.render_mode
        self.observation_space = batched.single_observation_space
        self.action_space = batched.single_action_space
        self._obs: Column | None = None  # the last observation shown, [1, ...]
        self._next_obs: Column | None = None  # once an episode ended: the first observation of the next

    def reset(self, *, seed: int | None = None, options: Infos | None = None) -> tuple[Any, Infos]:
        super().reset(seed=seed)
        if seed is not None or self._obs is None:
            self._obs, _ = self._batched.reset(seed=[self.np_random_seed])
        else:  # an episode that ended was followed by the next at once
            self._obs = self._batched.reset()[0] if self._next_obs is None else self._next_obs
        self._next_obs = None
        return self._obs[0], {"timestep": 0}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Infos]:
        started(self._obs)
        if self._next_obs is not None:
            raise ResetNeeded("the episode has ended: call reset() before step()")
        if not self.action_space.contains(action):
            raise InvalidAction(f"action={action!r}: must be an action of {self.action_space}")
        self._obs, reward, terminated, truncated, infos = self._batched.step(np.array([action]))
        if terminated[0] or truncated[0]:
            self._next_obs, self._obs, infos = self._obs, np.array([*infos["final_obs"]]), infos["final_info"]
        info = {"timestep": int(infos["timestep"][0])}
        return self._obs[0], float(reward[0]), bool(terminated[0]), bool(truncated[0]), info

    def render(self) -> Frames | None:
        """Frame `[H, W, 3]` of the last step, even if it ended its episode."""
        frames = self._batched.render(self._obs)
        return None if frames is None else frames[0]


# ---- keyword arguments of `gymnasium.make`


def make_single(*, render_mode: str | None = None, **given: Any) -> SingleEnv:
    """Entry point of `gymnasium.make`; see `make_world` for the arguments."""
    core, task = make_world(1, one_task=True, **given)
    return SingleEnv(BatchedEnv(core, 1, task, render_mode))


def make_batched(num_envs: int = 1, *, render_mode: str | None = None, **given: Any) -> BatchedEnv:
    """Entry point of `gymnasium.make_vec`; see `make_world` for the arguments."""
    core, tasks = make_world(num_envs, **given)
    return BatchedEnv(core, num_envs, tasks, render_mode)


def make_world(
    num_envs: int, *, name: str, max_episode_steps: int | None = None, one_task: bool = False, **given: Any
) -> tuple[TensorEnv, Tensor | None]:
    """World `name` with its options among `given`, and its tasks `[num_envs, task_dim]`; None if no task is given.

    A task is a row of `all_tasks` given as `task=`, or column by column, as in `goal=` or `key=` and `door=`; a cell
    may be given as (row, column). Plural names (`tasks=`, `goals=`), allowed unless `one_task`, give each environment
    its own. The clock truncates but never terminates, as Gymnasium's own; `max_episode_steps=None` means no limit.
    Raises `ValueError` for a value out of range and `TypeError` for a missing or unknown argument."""
    for argument, number in {"num_envs": num_envs, "max_episode_steps": max_episode_steps}.items():
        if number is not None and number < 1:
            raise ValueError(f"{argument}={number}: must be an int >= 1")
    declared = env_options()[name]
    options = {key: given.pop(key) for key in [*given] if key in declared.model_fields}
    try:
        core = make_env(declared(variant="gymnasium", **options))
    except ValidationError as error:
        raise ValueError(in_words(error, declared, options)) from error
    core.spec = core.spec._replace(max_episode_steps=max_episode_steps or _NO_LIMIT)
    names = ("task", *core.task_columns)
    known = names if one_task else (*names, *(f"{each}s" for each in names))
    for key in given.keys() - known:
        raise TypeError(f"{key}={given[key]!r}: no such argument; the task may be given as {', '.join(known)}")
    columns: dict[str, Sequence[Any]] = {}
    for each in names:
        one, many = given.get(each), given.get(f"{each}s")
        if many is not None and (one is not None or len(many) != num_envs):
            raise ValueError(f"{each}s={many}: must be num_envs={num_envs} of them, and {each}={one} must be None then")
        if one is not None or many is not None:
            columns[each] = [one] * num_envs if many is None else many
    return core, _read_tasks(columns, core) if columns else None


def _read_tasks(given: dict[str, Sequence[Any]], core: TensorEnv) -> Tensor:
    """Tasks `[num_envs, task_dim]` from one value per environment under each name."""
    columns, tasks = core.task_columns, list[list[float]]()
    if given.keys() not in ({"task"}, {*columns}):
        raise ValueError(f"{', '.join(given)}: a task is given by task alone, or by all of {', '.join(columns)}")
    rows = given["task"] if "task" in given else list(zip(*(given[name] for name in columns), strict=True))
    for i, row in enumerate(rows):
        try:
            tasks.append(read_task(core, row))
        except ValueError as error:
            values = ", ".join(f"{name}={column[i]}" for name, column in given.items())
            raise ValueError(f"{values}: {error}") from error
    return torch.tensor(tasks)


# ---- seeds, masks and infos, shared by every world that has Gymnasium's vector interface


def stream_seeds(seeds: Iterable[int]) -> Tensor:
    """Seeds of tensor environments `[B]` int64: Gymnasium's non-negative seeds, cut to 64 bits."""
    return torch.from_numpy(np.array([seed % 2**64 for seed in seeds], np.uint64).view(np.int64))


def seeds_of(seed: int | Sequence[int | None] | None, num_envs: int) -> Sequence[int | None]:
    """One seed for each stream from the argument of `VectorEnv.reset`; None means that no seed was chosen."""
    if seed is None or isinstance(seed, int):
        return [None if seed is None else seed + stream for stream in range(num_envs)]
    if len(seed) != num_envs:
        raise ValueError(f"seed={seed}: must be an int or a list of num_envs={num_envs}")
    return seed


def reset_mask(options: Infos, num_envs: int) -> Bools:
    """Streams that `VectorEnv.reset` resets, `[B]`: all without `options["reset_mask"]`."""
    mask = options.get("reset_mask", np.ones(num_envs, bool))
    if not (isinstance(mask, np.ndarray) and mask.dtype == np.bool_ and mask.shape == (num_envs,) and mask.any()):
        allowed = f"must be an array of num_envs={num_envs} bools, not all False"
        raise ValueError(f"options['reset_mask']={mask!r}: {allowed}")
    return mask.copy()


def started(state: StateType | None) -> StateType:
    """`state`, if there is one. Raises `ResetNeeded` before the first reset."""
    if state is None:
        raise ResetNeeded("call reset() first")
    return state


def final_infos(done: Bools, final_obs: Iterable[Any], final_info: Infos) -> Infos:
    """Infos of the streams `done` `[B]` that ended in a step, and the last observation of each of them, as in
    Gymnasium's own vector environments."""
    last_obs = np.full(len(done), None, dtype=object)
    for stream, obs in zip(done.nonzero()[0], final_obs, strict=True):
        last_obs[stream] = obs
    return {"final_obs": last_obs, "_final_obs": done.copy(), "final_info": final_info, "_final_info": done.copy()}
