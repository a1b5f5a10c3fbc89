"""The tensor environments behind Gymnasium's interfaces, numpy in and numpy out, for tools that expect those.

`BatchedEnv` stream i after `reset(seed=s)` is `SingleEnv` after `reset(seed=s + i)`, step by step. A seed decides all
that is random in a stream: the starts of all its episodes, the luck of its steps and, unless one is given, the task. A
reset without a seed starts the next episode of the same stream. B streams.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import Env, logger
from gymnasium.error import InvalidAction, ResetNeeded
from gymnasium.spaces import Discrete
from gymnasium.utils.seeding import np_random
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray
from torch import Tensor

from icrl.config.env_schema import EnvConfig
from icrl.envs import make_env
from icrl.envs.core import State, TensorEnv
from icrl.envs.gym.options import task_of, tasks_of, world_of
from icrl.envs.gym.spaces import final_infos, reset_mask, seeds_of, started, stream_seeds
from icrl.envs.render import render_cells
from icrl.randomness import integers

Ints = NDArray[np.int64]
Infos = dict[str, Any]

_TASK_DRAW = 2**62  # the counter of the draw of the task, apart from those of the episodes
_NOTHING = -1  # the action of a stream that has not acted yet


class SingleEnv(Env[np.int64, np.int64]):
    """One stream of `core`. `task` is the row of `all_tasks` a seeded reset starts on; None draws one from the seed.
    `info["timestep"]` counts the steps since the last reset."""

    metadata: Infos = {"render_modes": ["rgb_array"], "render_fps": 4}

    def __init__(self, core: TensorEnv, task: list[int] | None = None, render_mode: str | None = None) -> None:
        _check_render_mode(render_mode)
        self.render_mode = render_mode
        self.task = task
        self._core = core
        self.observation_space = Discrete(core.spec.num_obs)
        self.action_space = Discrete(core.spec.num_actions)
        self._state: State | None = None
        self._obs = np.int64(0)
        self._action = _NOTHING
        self._ended = False

    @property
    def stream(self) -> list[int]:
        """Where the stream stands: its task's row, then seed, episode, place and time step. Set it to go there."""
        state = started(self._state)
        return torch.cat([state.task[0], *state[1:]]).tolist()

    @stream.setter
    def stream(self, values: Sequence[int]) -> None:
        *task, seed, episode, place, timestep = torch.tensor(values).split(1)
        self._state = State(torch.stack(task, dim=1), seed, episode, place, timestep)
        self._show(self._core.observe(place))
        self._action = _NOTHING
        self._ended = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.int64, Infos]:
        super().reset(seed=seed)
        if seed is not None or self._state is None:
            seeds = stream_seeds([self.np_random_seed])
            tasks = _draw_tasks(self._core, seeds) if self.task is None else torch.tensor([self.task])
            self._state, _ = self._core.reset(tasks, seeds)
            self._action = _NOTHING
        elif not self._ended:  # where it ended, the core has started the next episode
            self._state = self._core.next_episode(self._state, torch.tensor([True]))
        self._ended = False
        return self._show(self._core.observe(self._state.state_index)), {"timestep": 0}

    def step(self, action: np.int64) -> tuple[np.int64, float, bool, bool, Infos]:
        state = started(self._state)
        if self._ended:
            raise ResetNeeded("the episode has ended: call reset() before step()")
        if not self.action_space.contains(action):
            raise InvalidAction(f"action={action!r}: must be an integer >= 0 and < {self._core.spec.num_actions}")
        self._action = int(action)
        self._state, step = self._core.step(state, torch.tensor([self._action]))
        terminated, truncated = bool(step.terminated), bool(step.truncated)
        self._ended = terminated or truncated
        info = {"timestep": int(state.timestep) + 1}
        reward = self._core.spec.reward_values[int(step.reward)]
        return self._show(step.final_obs), reward, terminated, truncated, info

    def render(self) -> NDArray[np.uint8] | None:
        """The world as it is, and in a bandit the arm pulled last, `[H, W, 3]`."""
        if self.render_mode is None:
            logger.warn("render() shows nothing: make the environment with render_mode='rgb_array'")
            return None
        return _frame(self._core, self._obs, self._action, started(self._state).task[0])

    def _show(self, obs: Tensor) -> np.int64:
        self._obs = np.int64(obs.item())
        return self._obs


class BatchedEnv(VectorEnv[Ints, Ints, NDArray[Any]]):
    """B streams of `core` stepped as one batch of tensors, with auto-reset in the same step. Their tasks are `tasks`
    `[B, task_dim]`; None draws them from the seeds."""

    metadata: Infos = {**SingleEnv.metadata, "autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(
        self,
        core: TensorEnv,
        num_envs: int,
        tasks: Tensor | None = None,
        render_mode: str | None = None,
    ) -> None:
        _check_render_mode(render_mode)
        self.num_envs = num_envs
        self.render_mode = render_mode
        self._core = core
        self._tasks = tasks
        self._reward_values = np.array(core.spec.reward_values)
        self._actions = np.full(num_envs, _NOTHING)
        self.single_observation_space = Discrete(core.spec.num_obs)
        self.single_action_space = Discrete(core.spec.num_actions)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._state: State | None = None

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Ints, Infos]:
        """Stream i takes seed + i, or the i-th of a list of seeds. With `options["reset_mask"]`, bool `[B]`, the other
        streams stay as they are."""
        super().reset(seed=seed if isinstance(seed, int) else None)
        seeds, where = seeds_of(seed, self.num_envs), reset_mask(options or {}, self.num_envs)
        if self._state is None:
            if not where.all():
                raise ResetNeeded("the first reset() must start every stream: leave out options['reset_mask']")
            self._state, self._actions = self._start(seeds), np.full(self.num_envs, _NOTHING)
        else:
            self._state = self._core.next_episode(self._state, torch.from_numpy(where))
            if seed is not None:
                fresh = where & np.array([each is not None for each in seeds])
                self._state = _where(torch.from_numpy(fresh), self._start(seeds), self._state)
                self._actions = np.where(fresh, _NOTHING, self._actions)
        return self._observe(self._state), {"timestep": np.zeros(self.num_envs, np.int64), "_timestep": where}

    def step(self, actions: Ints) -> tuple[Ints, NDArray[Any], NDArray[Any], NDArray[Any], Infos]:
        state = started(self._state)
        actions = np.asarray(actions)
        if not self.action_space.contains(actions):
            raise InvalidAction(
                f"actions={actions!r}: must be {self.num_envs} integers >= 0 and < {self._core.spec.num_actions}"
            )
        self._actions = actions.copy()
        self._state, step = self._core.step(state, torch.from_numpy(actions).long())
        terminated, truncated = step.terminated.numpy(), step.truncated.numpy()
        infos: Infos = {"timestep": self._state.timestep.numpy().copy(), "_timestep": np.ones(self.num_envs, bool)}
        done = terminated | truncated
        if done.any():
            final_info = {"timestep": np.where(done, state.timestep.numpy() + 1, 0), "_timestep": done.copy()}
            infos |= final_infos(done, step.final_obs.numpy()[done], final_info)
        return self._observe(self._state), self._reward_values[step.reward.numpy()], terminated, truncated, infos

    def render(self) -> tuple[NDArray[np.uint8], ...] | None:
        """Every stream's world as `SingleEnv.render` shows it, B frames `[H, W, 3]`."""
        if self.render_mode is None:
            logger.warn("render() shows nothing: make the environment with render_mode='rgb_array'")
            return None
        state = started(self._state)
        columns = (self._observe(state), self._actions.tolist(), state.task)
        return tuple(_frame(self._core, *each) for each in zip(*columns, strict=True))

    def _observe(self, state: State) -> Ints:
        return self._core.observe(state.state_index).numpy().copy()  # a copy: the caller may write to it

    def _start(self, seeds: Sequence[int | None]) -> State:
        """Every stream at its beginning; None is a seed nobody chose."""
        drawn = stream_seeds(np_random(seed)[1] for seed in seeds)  # np_random checks and chooses as `Env.reset` does
        tasks = _draw_tasks(self._core, drawn) if self._tasks is None else self._tasks
        return self._core.reset(tasks, drawn)[0]


def make_single(
    *, name: str, max_episode_steps: int | None = None, render_mode: str | None = None, **given: Any
) -> SingleEnv:
    """The world `name` with its options and, if one is given, its task (see `gymnasium_options.task_of`).
    `max_episode_steps=None` leaves the clock to a `TimeLimit` around it. Raises `ValueError` for what is out of range,
    `TypeError` for what is missing or unknown."""
    core, task = world_of(name, max_episode_steps, given)
    return SingleEnv(core, task_of(core, task), render_mode)


def make_batched(
    num_envs: int = 1,
    *,
    name: str,
    max_episode_steps: int | None = None,
    render_mode: str | None = None,
    **given: Any,
) -> BatchedEnv:
    """As `make_single`, with one task for all streams or one for each (see `gymnasium_options.tasks_of`)."""
    if num_envs < 1:
        raise ValueError(f"num_envs={num_envs}: must be an int >= 1")
    core, tasks = world_of(name, max_episode_steps, given)
    return BatchedEnv(core, num_envs, tasks_of(core, tasks, num_envs), render_mode)


def singles_of(config: EnvConfig, number: int) -> list[SingleEnv]:
    """Environments of the tensor world that `config` describes, with its clock."""
    core = make_env(config)
    return [SingleEnv(core) for _ in range(number)]


def _draw_tasks(core: TensorEnv, seeds: Tensor) -> Tensor:
    """A task for each of `seeds` `[B]`, `[B, task_dim]`."""
    tasks = core.all_tasks()
    return tasks[integers(seeds, _TASK_DRAW, len(tasks))]


def _where(condition: Tensor, state: State, other: State) -> State:
    """Streams of `state` where `condition` `[B]` is true, else those of `other`."""
    task = torch.where(condition[:, None], state.task, other.task)
    return State(task, *(torch.where(condition, a, b) for a, b in zip(state[1:], other[1:], strict=True)))


def _frame(core: TensorEnv, obs: np.int64, action: int, task: Tensor) -> NDArray[np.uint8]:
    cell = core.cell(torch.tensor([int(obs)]), torch.tensor([action]))
    return render_cells(cell.numpy(), core.map_view(task))[0]


def _check_render_mode(render_mode: str | None) -> None:
    if render_mode not in (None, *SingleEnv.metadata["render_modes"]):
        raise ValueError(f"render_mode={render_mode!r}: must be 'rgb_array' or None")
