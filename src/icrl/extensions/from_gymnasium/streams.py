"""Streams of any Gymnasium environment, stepped one after the other in this process. B streams, M steps an episode.

Every episode is reset with a seed of its own, a function of (seed of the stream, episode), so its randomness does not
depend on earlier episodes. A Gymnasium environment cannot be put into a state: to restore one, its episode is replayed.
"""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any, NamedTuple, cast

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from icrl.contracts import ConfigError, PipelineError, Step
from icrl.extensions.from_gymnasium.border import read_expert, read_obs, rows_of, write_action
from icrl.extensions.from_gymnasium.guard import Guard, begin_turn
from icrl.extensions.from_gymnasium.making import Maker, creator_of
from icrl.randomness import integers
from icrl.spaces import EnvSpec

_WITHOUT_WINDOW = {"SDL_VIDEODRIVER": "dummy", "SDL_AUDIODRIVER": "dummy", "PYGAME_HIDE_SUPPORT_PROMPT": "1"}
if sys.platform == "linux" and "DISPLAY" not in os.environ:
    _WITHOUT_WINDOW["MUJOCO_GL"] = "egl"  # MuJoCo draws without a screen through this, else through a window's library
_MUJOCO_GL = " (without a screen MuJoCo draws by the library that MUJOCO_GL names, egl or osmesa)"
_NUM_SEEDS = 1 << 31  # even environments that keep their seed in 32 bits can take one of these
_LARGEST_REWARD = float(np.finfo(np.float32).max)


class PlayedState(NamedTuple):
    """State of B streams, with the actions of the current episode that restore it by replay."""

    task: Tensor  # [B, 1] int64
    seed: Tensor  # [B] int64
    episode: Tensor  # [B] int64: episodes finished so far
    inner: Tensor  # [B, *obs_shape]: the last observation
    timestep: Tensor  # [B] int64: steps since the last reset
    actions: Tensor  # [B, M, *action_shape]: of this episode; zeros from the time step on

    def after(self, action: Tensor, step: Step) -> "PlayedState":
        """State after `action` `[B, *action_shape]` led to `step`."""
        ended = step.terminated | step.truncated
        actions = self.actions.clone()
        actions[torch.arange(len(action), device=action.device), self.timestep] = action
        actions[ended] = 0
        return PlayedState(self.task, self.seed, self.episode + ended, step.obs, step.timestep, actions)


class GymnasiumStreams:
    """`contracts.Env` without tasks and planner: `optimal_action` of its steps is unknown unless the environments have
    an expert (`border.read_expert`)."""

    before_each: Callable[[], object] | None = None  # called before each reset and step of an environment

    def __init__(self, maker: Maker, spec: EnvSpec) -> None:
        """The environments are made by the first reset."""
        self._maker, self._spec = maker, spec
        self._streams: list[_Stream] = []
        self._state: PlayedState | None = None  # the state that the environments are in

    def reset(self, tasks: Tensor, seeds: Tensor) -> tuple[PlayedState, Step]:
        zero, spec = torch.zeros_like(seeds), self._spec
        with self._environments(len(seeds)):
            obs = self._begin(self._streams, tasks, seeds, zero)
        shape = (len(seeds), spec.max_episode_steps, *spec.action_shape)
        actions = torch.zeros(shape, dtype=spec.action_dtype, device=seeds.device)
        self._state = PlayedState(tasks, seeds, zero, obs, zero, actions)
        return self._state, Step(obs, zero.float(), zero.bool(), zero.bool(), obs, zero, self._best_actions(zero))

    def step(self, state: PlayedState, action: Tensor) -> tuple[PlayedState, Step]:
        """Any `state` is valid: environments in another one are set to it first."""
        spec, device = self._spec, action.device
        with self._environments(len(action)):
            if state is not self._state:
                where = (state.task, state.episode, _seeds(state.seed, state.episode))
                self._each(self._streams, _Stream.restore, *(column.flatten() for column in where), *state[3:])
            seen, rewards, *ends = zip(*self._each(self._streams, _Stream.act, action), strict=True)
            reward = np.array(rewards)
            if spec.reward_values:
                reward = np.array(spec.reward_values)[reward_indices(reward, spec)]
            terminated, truncated = (torch.tensor(end, device=device) for end in ends)
            obs = final_obs = self._tensor(seen, device)
            ended = (terminated | truncated).nonzero()[:, 0]
            if len(ended):
                over = [self._streams[stream] for stream in ended.tolist()]
                begun = self._begin(over, state.task[ended], state.seed[ended], state.episode[ended] + 1)
                obs = final_obs.index_copy(0, ended, begun)
        timestep = (state.timestep + 1).index_fill(0, ended, 0)
        paid, best = torch.from_numpy(reward).float().to(device), self._best_actions(timestep)
        step = Step(obs, paid, terminated, truncated, final_obs, timestep, best)
        self._state = state.after(action, step)
        return self._state, step

    def close(self) -> None:
        """Close the environments; the next reset or step makes new ones."""
        streams, self._streams, self._state = self._streams, list[_Stream](), None
        self._each(streams, _Stream.close)

    def pictures(self, task: int, seed: int, episode: int, seen: list[Any], actions: list[Any]) -> list[Any]:
        """Pictures `[H, W, 3]` by the environment's own `render()`: of the start of an episode, and of the state after
        each of its M `actions`, by replay. `seen` are its M + 1 observations; without any, only the start is drawn.
        Raises `PipelineError` if the environment has no pictures, lacks a package that draws them, or does other things
        in a replay."""
        for name, value in _WITHOUT_WINDOW.items():
            os.environ.setdefault(name, value)
        env_id, stream = self._maker.env_id, self._stream(render_mode="rgb_array")
        with Guard(self._maker.timeout, lambda: f"env.id={env_id}{_MUJOCO_GL if 'mujoco' in sys.modules else ''}"):
            modes = getattr(creator_of(env_id), "metadata", {}).get("render_modes", ["rgb_array"])
            if "rgb_array" not in modes:
                raise ValueError(f"rgb_array is not among its render modes {modes}")
            with closing(stream):
                return stream.pictures(task, episode, int(_seeds(torch.tensor(seed), episode)), seen, actions)

    @contextmanager
    def _environments(self, num_streams: int) -> Iterator[None]:
        """One environment for each stream; all are closed after an error, because their states are unknown then."""
        try:
            if len(self._streams) != num_streams:
                self.close()
                self._streams = [self._stream() for _ in range(num_streams)]
            yield
        except BaseException:
            with suppress(PipelineError):  # the first error counts
                self.close()
            raise

    def _stream(self, **arguments: Any) -> "_Stream":
        return _Stream(self._maker, self._spec, self._begin_turn, **arguments)

    def _begin_turn(self) -> None:
        begin_turn()
        if self.before_each:
            self.before_each()

    def _begin(self, streams: list["_Stream"], tasks: Tensor, seeds: Tensor, episodes: Tensor) -> Tensor:
        """First observations of the next episodes of `streams`, `[B, *obs_shape]`."""
        observations = self._each(streams, _Stream.begin, tasks[:, 0], episodes, _seeds(seeds, episodes))
        return self._tensor(observations, seeds.device)

    def _best_actions(self, like: Tensor) -> Tensor:
        """Actions of the experts now, `[B, *action_shape]` for `like` `[B]`, or unknown ones."""
        if not self._maker.has_expert:
            return self._spec.unknown_action(like)
        actions = np.array([stream.expert_action for stream in self._streams])
        return torch.from_numpy(actions).to(like.device, self._spec.action_dtype)

    def _tensor(self, obs: Sequence[Any], device: torch.device) -> Tensor:
        return torch.from_numpy(np.array(obs)).to(device, self._spec.obs_dtype)

    def _each(self, streams: list["_Stream"], method: Callable[..., Any], *columns: Tensor) -> list[Any]:
        """Results of `method` for each stream with its row of `columns`. Raises `PipelineError` for any error there."""
        results, rows = list[Any](), zip(streams, *map(rows_of, columns), strict=True)

        def where() -> str:
            return f"env.id={self._maker.env_id}, env.tasks[{stream.task}], {stream.place}"

        with Guard(self._maker.timeout, where):
            for stream, *row in rows:
                results.append(method(stream, *row))
        return results


class _Stream:
    """One environment. A `seed` here is that of an episode."""

    def __init__(self, maker: Maker, spec: EnvSpec, begin_turn: Callable[[], None], **arguments: Any) -> None:
        self._maker, self._arguments, self._spec, self._space = maker, arguments, spec, spec.observation_space
        self._begin_turn = begin_turn  # called before each reset and step
        self._env: gymnasium.Env[Any, Any] | None = None
        self.task = self._episode = self._time = 0
        self.expert_action: Any = None  # if the maker asks for it

    @property
    def place(self) -> str:
        """Words for the episode and its step, both counted from 1."""
        return f"episode {self._episode + 1}, {f'step {self._time}' if self._time else 'reset'}"

    def begin(self, task: int, episode: int, seed: int) -> Any:
        """First observation of an episode."""
        self._begin_turn()
        self._episode, self._time = episode, 0
        fits = self._env is not None and self._maker.made_alike(self.task, task)
        self.task = task
        if self._env is None or not fits:
            self.close()
            self._env = self._maker.make(task, **self._arguments)
        obs, info = self._maker.reset(self._env, task, seed)
        return self._read(obs, info, ended=False)

    def act(self, action: Any) -> tuple[Any, float, bool, bool]:
        """Observation, reward, terminated, truncated."""
        assert self._env is not None, "a stream begins with a reset"
        self._begin_turn()
        self._time += 1
        obs, reward, terminated, truncated, info = self._env.step(write_action(action, self._env.action_space))
        number = np.nan if reward is None or np.ndim(cast(Any, reward)) else float(reward)
        if not abs(number) <= _LARGEST_REWARD:
            raise ValueError(f"its reward {reward} is not a finite float32 number")
        terminated, truncated = bool(terminated), bool(truncated)
        return self._read(obs, info, terminated or truncated), number, terminated, truncated

    def _read(self, obs: Any, info: dict[str, Any], ended: bool) -> Any:
        """Observation as an element of the spec's space."""
        seen = read_obs(obs, self._space)
        if self._maker.has_expert and not ended:
            self.expert_action = read_expert(info, self._spec, seen)
        return seen

    def restore(self, task: int, episode: int, seed: int, last_obs: Any, timestep: int, actions: Any) -> None:
        """Bring the environment to a state by replaying its episode."""
        obs = self.begin(task, episode, seed)
        for action in actions[:timestep]:
            obs = self.act(action)[0]
        if not np.array_equal(obs, last_obs):
            raise ValueError(f"the same seed and actions led to {last_obs} before, now to {obs}: it cannot be resumed")

    def pictures(self, task: int, episode: int, seed: int, seen: list[Any], actions: list[Any]) -> list[Any]:
        """Pictures of an episode by replay, see `GymnasiumStreams.pictures`."""
        obs, frames = self.begin(task, episode, seed), list[Any]()
        assert self._env is not None
        for number, last_obs in enumerate(seen or [obs]):
            obs = self.act(actions[number - 1])[0] if number else obs
            if not np.array_equal(obs, last_obs):
                raise ValueError(f"the same seed and actions led to {last_obs} before, now to {obs}")
            frames.append(self._env.render())
        return frames

    def close(self) -> None:
        env, self._env = self._env, None
        if env is not None:
            env.close()


def _seeds(seeds: Tensor, episodes: Tensor | int) -> Tensor:
    """Seeds of episodes, given those of their streams."""
    return integers(seeds, episodes, _NUM_SEEDS)


def reward_indices(values: NDArray[np.float64], spec: EnvSpec) -> NDArray[np.int64]:
    """Indices of rewards into `spec.reward_values`, of the same shape. Raises `ConfigError` for a missing value."""
    known = np.array(spec.reward_values)
    index = np.abs(values[..., None] - known).argmin(axis=-1)
    unknown = values[~np.isclose(values, known[index], rtol=1e-6, atol=1e-9)]  # accepts float32 rewards
    if unknown.size:
        more = f"give env.reward_values={sorted([*spec.reward_values, float(unknown[0])])}".replace(", ", ",")
        lacking = f"env.reward_values={[*spec.reward_values]}: lacks {unknown[0]:g}, a reward of this world"
        raise ConfigError(f"{lacking}: {more}, or env.reward_values=[] if rewards may be any numbers")
    return index
