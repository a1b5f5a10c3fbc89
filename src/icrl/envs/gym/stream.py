"""One stream of a Gymnasium environment, in which every episode is a function of (seed, episode, actions)."""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.spaces import Discrete

from icrl.randomness import integers

_SEEDS = 1 << 31  # what even environments that keep their seed in 32 bits can take

Observed = tuple[np.int64, dict[str, Any]]


def make_task(env_id: str, arguments: dict[str, Any]) -> gymnasium.Env[Any, Any]:
    """`gymnasium.make` without its checker, for `SeededStream` looks at every step."""
    return gymnasium.make(env_id, disable_env_checker=True, **arguments)


class SeededStream(gymnasium.Env[np.int64, np.int64]):
    """See `vectorized.py` for `task`, `stream` and what becomes of errors.

    Each episode is reset with a seed of its own, so that what is random in it does not depend on the episodes before.
    An environment cannot be put in a state: to go to one, its episode is played again."""

    def __init__(self, env_id: str, tasks: Sequence[dict[str, Any]], num_obs: int, num_actions: int) -> None:
        """`tasks` are the arguments of `gymnasium.make`; the environment is made with the first reset."""
        self.observation_space, self.action_space = Discrete(num_obs), Discrete(num_actions)
        self.task = [0]
        self.stream: list[int] | None = None  # task, seed, episode, state_index, time step, actions; None: it is there
        self._id, self._tasks = env_id, tasks
        self._env: gymnasium.Env[Any, Any] | None = None
        self._made = -1  # the task of `_env`
        self._seed = self._episode = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Observed:
        """Start the first episode with `seed`, or the next one without."""
        try:
            if seed is None:
                return self._begin(self._seed, self._episode + 1), {}
            self.stream = None
            return self._begin(seed, 0), {}
        except Exception as error:  # whatever a foreign environment may raise
            return np.int64(0), {"error": self._told(error)}

    def step(self, action: np.int64) -> tuple[np.int64, float, bool, bool, dict[str, Any]]:
        try:
            if self.stream is not None:
                self._go_to(*self.stream)
            return *self._play(int(action)), {}
        except Exception as error:
            return np.int64(0), 0.0, False, False, {"error": self._told(error)}

    def close(self) -> None:
        if self._env is not None:
            self._env.close()
        self._env = None

    def _begin(self, seed: int, episode: int) -> np.int64:
        """The first observation of an episode on the task that is set."""
        if self._env is None or self._made != self.task[0]:
            self.close()
            self._made = self.task[0]
            self._env = make_task(self._id, self._tasks[self._made])
        self._seed, self._episode = seed, episode
        signed = torch.tensor((seed + 2**63) % 2**64 - 2**63)  # as in the tensors
        obs, _ = self._env.reset(seed=int(integers(signed, episode, _SEEDS)))
        return self._observed(obs)

    def _play(self, action: int) -> tuple[np.int64, float, bool, bool]:
        assert self._env is not None, "a stream begins with a reset"
        obs, reward, terminated, truncated, _ = self._env.step(action)
        return self._observed(obs), float(reward), bool(terminated), bool(truncated)

    def _go_to(self, task: int, seed: int, episode: int, state_index: int, timestep: int, *actions: int) -> None:
        self.task, self.stream = [task], None
        obs = self._begin(seed, episode)
        for action in actions[:timestep]:
            obs, *_ = self._play(action)
        if obs != state_index:
            raise ValueError(
                f"the same seed and actions led to {state_index} before and to {obs} now: it cannot be resumed"
            )

    def _observed(self, obs: Any) -> np.int64:
        if not self.observation_space.contains(obs):
            raise ValueError(f"its observation {obs} is not in {self.observation_space}")
        return np.int64(obs)

    def _told(self, error: Exception) -> str:
        return f"env.id={self._id}, env.tasks[{self.task[0]}]: {in_one_line(error)}"


def seeded_streams(
    env_id: str, tasks: Sequence[dict[str, Any]], num_obs: int, num_actions: int, number: int
) -> list[SeededStream]:
    return [SeededStream(env_id, tasks, num_obs, num_actions) for _ in range(number)]


def in_one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
