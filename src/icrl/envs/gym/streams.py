"""Streams of any Gymnasium environment with discrete spaces, stepped one after the other in this process. B streams.

Every episode is reset with a seed of its own, a function of (seed of the stream, episode), so its randomness does not
depend on earlier episodes. A Gymnasium environment cannot be put into a state: to restore one, its episode is replayed.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
from gymnasium.envs.registration import load_env_creator
from gymnasium.spaces import Discrete
from numpy.typing import NDArray
from torch import Tensor

from icrl.contracts import ConfigError, PipelineError, Step
from icrl.envs.gym.registered import registered
from icrl.randomness import integers
from icrl.spaces import EnvSpec

_WITHOUT_WINDOW = {"SDL_VIDEODRIVER": "dummy", "SDL_AUDIODRIVER": "dummy", "PYGAME_HIDE_SUPPORT_PROMPT": "1"}
_NUM_SEEDS = 1 << 31  # even environments that keep their seed in 32 bits can take one of these


class PlayedState(NamedTuple):
    """State of B streams, with the actions of the current episode that restore it by replay."""

    task: Tensor  # [B, 1] int64
    seed: Tensor  # [B] int64
    episode: Tensor  # [B] int64: episodes finished so far
    inner: Tensor  # [B] int64: the last observation
    timestep: Tensor  # [B] int64: steps since the last reset
    actions: Tensor  # [B, M] int64: of this episode; zeros from the time step on


class GymnasiumStreams:
    """`contracts.Env` without tasks and planner: `optimal_action` of its steps is always unknown."""

    before_each: Callable[[], object] | None = None  # called before each environment's turn

    def __init__(self, env_id: str, tasks: Sequence[dict[str, Any]], spec: EnvSpec) -> None:
        """`tasks` are arguments of `gymnasium.make`; the environments are made by the first reset."""
        self._id, self._tasks, self._spec = env_id, tasks, spec
        self._streams: list[_Stream] = []
        self._state: PlayedState | None = None  # the state that the environments are in

    def reset(self, tasks: Tensor, seeds: Tensor) -> tuple[PlayedState, Step]:
        zero = torch.zeros_like(seeds)
        with self._environments(len(seeds)):
            first = self._each_stream(_Stream.begin, tasks[:, 0].tolist(), seeds.tolist(), zero.tolist())
        obs = torch.tensor(first, device=seeds.device)
        actions = zero[:, None].repeat(1, self._spec.max_episode_steps)
        self._state = PlayedState(tasks, seeds, zero, obs, zero, actions)
        unknown = self._spec.unknown_action(zero)
        return self._state, Step(obs, zero.float(), zero.bool(), zero.bool(), obs, zero, unknown)

    def step(self, state: PlayedState, action: Tensor) -> tuple[PlayedState, Step]:
        """Any `state` is valid: environments in another one are set to it first."""
        with self._environments(len(action)):
            if state is not self._state:
                columns = (field.flatten().tolist() for field in state[:-1])
                self._each_stream(_Stream.restore, *columns, state.actions.tolist())
            rows = self._each_stream(_Stream.act, action.tolist())
            arrays = [np.array(column) for column in zip(*rows, strict=True)]
            arrays[1] = np.array(self._spec.reward_values, np.float32)[reward_indices(arrays[1], self._spec)]
        obs, reward, terminated, truncated, final_obs = (torch.from_numpy(each).to(action.device) for each in arrays)
        ended = terminated | truncated
        actions = state.actions.scatter(1, state.timestep[:, None], action[:, None]).masked_fill(ended[:, None], 0)
        timestep = (state.timestep + 1).masked_fill(ended, 0)
        self._state = PlayedState(state.task, state.seed, state.episode + ended, obs, timestep, actions)
        unknown = self._spec.unknown_action(timestep)
        return self._state, Step(obs, reward, terminated, truncated, final_obs, timestep, unknown)

    def close(self) -> None:
        """Close the environments; the next reset or step makes new ones."""
        for stream in self._streams:
            stream.close()
        self._streams.clear()
        self._state = None

    def pictures(self, task: int, seed: int, episode: int, seen: list[int], actions: list[int]) -> list[Any]:
        """Pictures `[H, W, 3]` by the environment's own `render()`: of the start of an episode, and of the state after
        each of its M `actions`, by replay. `seen` are its M + 1 observations. Raises `PipelineError` if the environment
        has no pictures, lacks a package that draws them, or does other things in a replay."""
        for name, value in _WITHOUT_WINDOW.items():
            os.environ.setdefault(name, value)
        stream = _Stream(self._id, [each | {"render_mode": "rgb_array"} for each in self._tasks], self._spec.num_obs)
        try:
            modes = getattr(creator_of(self._id), "metadata", {}).get("render_modes", ["rgb_array"])
            if "rgb_array" not in modes:
                raise ValueError(f"rgb_array is none of its render modes {modes}")
            with closing(stream):
                return stream.pictures(task, seed, episode, seen, actions)
        except Exception as error:  # an environment from outside may raise anything
            raise PipelineError(f"env.id={self._id}: {describe_error(error)}") from error

    @contextmanager
    def _environments(self, num_streams: int) -> Iterator[None]:
        """One environment for each stream; all are closed after an error, because their states are unknown then."""
        try:
            if len(self._streams) != num_streams:
                self.close()
                self._streams = [_Stream(self._id, self._tasks, self._spec.num_obs) for _ in range(num_streams)]
            yield
        except BaseException:
            self.close()
            raise

    def _each_stream(self, method: Callable[..., Any], *columns: list[Any]) -> list[Any]:
        """Results of `method` for each stream with its row of `columns`. Raises `PipelineError` for any error there."""
        results = []
        for stream, *row in zip(self._streams, *columns, strict=True):
            if self.before_each:
                self.before_each()
            try:
                results.append(method(stream, *row))
            except Exception as error:  # an environment from outside may raise anything
                where = f"env.id={self._id}, env.tasks[{stream.task}]"
                raise PipelineError(f"{where}: {describe_error(error)}") from error
        return results


class _Stream:
    def __init__(self, env_id: str, tasks: Sequence[dict[str, Any]], num_obs: int) -> None:
        self._id, self._tasks, self._space = env_id, tasks, Discrete(num_obs)
        self._env: gymnasium.Env[Any, Any] | None = None
        self.task = self._seed = self._episode = 0

    def begin(self, task: int, seed: int, episode: int) -> int:
        """First observation of an episode."""
        self._seed, self._episode = seed, episode
        if self._env is None or self.task != task:
            self.close()
            self.task = task
            made = registered(self._id)
            self._env = gymnasium.make(made, disable_env_checker=True, **self._tasks[task])  # `_checked` checks it
        return self._checked(self._env.reset(seed=int(integers(torch.tensor(seed), episode, _NUM_SEEDS)))[0])

    def act(self, action: int) -> tuple[int, float, bool, bool, int]:
        """Observation (of the next episode after an end), reward, terminated, truncated, final observation."""
        assert self._env is not None, "a stream begins with a reset"
        seen, reward, terminated, truncated, _ = self._env.step(action)
        obs = final_obs = self._checked(seen)
        if terminated or truncated:
            obs = self.begin(self.task, self._seed, self._episode + 1)
        return obs, float(reward), bool(terminated), bool(truncated), final_obs

    def restore(self, task: int, seed: int, episode: int, last_obs: int, timestep: int, actions: list[int]) -> None:
        """Bring the environment to a state by replaying its episode."""
        obs = self.begin(task, seed, episode)
        for action in actions[:timestep]:
            assert self._env is not None
            obs = self._checked(self._env.step(action)[0])
        if obs != last_obs:
            raise ValueError(f"the same seed and actions led to {last_obs} before, now to {obs}: it cannot be resumed")

    def pictures(self, task: int, seed: int, episode: int, seen: list[int], actions: list[int]) -> list[Any]:
        """Pictures of an episode by replay, see `GymnasiumStreams.pictures`."""
        self.restore(task, seed, episode, seen[0], 0, [])
        assert self._env is not None
        found = [self._env.render()]
        for action, last_obs in zip(actions, seen[1:], strict=True):
            if (obs := self._checked(self._env.step(action)[0])) != last_obs:
                raise ValueError(f"the same seed and actions led to {last_obs} before, now to {obs}")
            found.append(self._env.render())
        return found

    def close(self) -> None:
        if self._env is not None:
            self._env.close()
        self._env = None

    def _checked(self, obs: Any) -> int:
        if not self._space.contains(obs):
            raise ValueError(f"its observation {obs} is not in {self._space}")
        return int(obs)


def creator_of(env_id: str) -> Any:
    """Class or function that makes the environment `env_id`."""
    entry_point = registered(env_id).entry_point
    return load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point


def describe_error(error: Exception) -> str:
    """Type and message of an error in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def reward_indices(values: NDArray[np.float64], spec: EnvSpec) -> NDArray[np.int64]:
    """Indices of rewards into `spec.reward_values`, of the same shape. Raises `ConfigError` for a missing value."""
    known = np.array(spec.reward_values)
    index = np.abs(values[..., None] - known).argmin(axis=-1)
    unknown = values[~np.isclose(values, known[index], rtol=1e-6, atol=1e-9)]  # accepts float32 rewards
    if unknown.size:
        more = f"give env.reward_values={sorted([*spec.reward_values, float(unknown[0])])}".replace(", ", ",")
        known_ones = [*spec.reward_values]
        raise ConfigError(f"env.reward_values={known_ones}: lacks {unknown[0]:g}, a reward of this world: {more}")
    return index
