"""Trials of several episodes as episodes of a Gymnasium environment, as in RL^2 (Duan et al., 2016, arXiv 1611.02779).

An agent with memory of any library learns in context on these, and `play_trials` evaluates it as `icrl.evaluate` does
our models: lives of E episodes on each of G tasks, from an empty memory.

>>> import gymnasium
>>> goals = [(0, 0), (4, 0), (4, 4)]
>>> rooms = [gymnasium.make("icrl:icrl/DarkRoom-v0", size=5, max_episode_steps=10, goal=goal) for goal in goals]
>>> env = TrialEnv(rooms, num_episodes=4)
>>> obs, info = env.reset(seed=0)
>>> [*obs]
['action', 'obs', 'reward', 'start']
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium import Env
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete
from numpy.typing import NDArray

from icrl.config.options import refuse

_SEEDS = 2**31  # of environments

Obs = dict[str, Any]
Predict = Callable[..., tuple[Any, Any]]


class TrialEnv(Env[Obs, Any]):
    """`num_episodes` episodes of one of `envs`, which have one task each, as one episode; it ends, truncated, with the
    last of them.

    An observation has that of the environment (`obs`), the action and the reward of the step before (at the start of a
    trial the action nearest to 0, and 0) and whether an episode starts. `reset` starts a trial in an environment drawn
    by the seed, or in that with the number `options["task"]`. `info["returns"]` has the returns of the episodes that
    the trial has finished. Raises `ConfigError` for environments whose spaces differ, or whose actions are neither
    numbers nor vectors."""

    def __init__(self, envs: Sequence[Env[Any, Any]], num_episodes: int) -> None:
        refuse(num_episodes < 1, f"num_episodes={num_episodes}: must be at least 1")
        refuse(not envs, "envs=[]: must have at least one environment")
        spaces = [(env.observation_space, env.action_space) for env in envs]
        refuse(any(one != spaces[0] for one in spaces), "envs: must all have the same spaces")
        observations, actions = spaces[0]
        allowed = isinstance(actions, Discrete | MultiDiscrete | Box)
        refuse(not allowed, f"actions in {actions}: must be Discrete, MultiDiscrete or a Box")
        self.envs, self.num_episodes, self.action_space = envs, num_episodes, actions
        zeros, first = np.zeros(actions.shape or (), actions.dtype), getattr(actions, "start", 0)
        last = first + getattr(actions, "nvec", getattr(actions, "n", 0)) - 1
        low, high = (actions.low, actions.high) if isinstance(actions, Box) else (first, last)
        self._no_action = np.clip(zeros, low, high)[()]
        reward = Box(-np.inf, np.inf, (1,), np.float32)
        parts = {"action": actions, "obs": observations, "reward": reward, "start": Discrete(2)}
        self.observation_space = Dict(parts)
        self._env, self._returns, self._return = envs[0], list[float](), 0.0

    def reset(self, *, seed: int | None = None, options: Obs | None = None) -> tuple[Obs, Obs]:
        super().reset(seed=seed)
        drawn, seed = int(self.np_random.integers(len(self.envs))), int(self.np_random.integers(_SEEDS))
        task = (options or {}).get("task", drawn)
        if not isinstance(task, int | np.integer) or task not in range(len(self.envs)):
            raise ValueError(f"options['task']={task!r}: must be an int from 0 to {len(self.envs) - 1}")
        self._env = self.envs[int(task)]
        self._returns, self._return = list[float](), 0.0
        obs, info = self._env.reset(seed=seed)
        return self._observed(obs, self._no_action, 0.0, True), info | {"returns": []}

    def step(self, action: Any) -> tuple[Obs, float, bool, bool, Obs]:
        obs, reward, terminated, truncated, info = self._env.step(action)
        reward, ended = float(reward), terminated or truncated
        self._return += reward
        if ended:
            self._returns.append(self._return)
            self._return = 0.0
        over = len(self._returns) == self.num_episodes
        if ended and not over:
            obs, info = self._env.reset()
        return self._observed(obs, action, reward, ended), reward, False, over, info | {"returns": [*self._returns]}

    def render(self) -> Any:
        return self._env.render()

    def close(self) -> None:
        for env in self.envs:
            env.close()

    def _observed(self, obs: Any, action: Any, reward: float, start: bool) -> Obs:
        return {"action": action, "obs": obs, "reward": np.array([reward], np.float32), "start": int(start)}


def play_trials(predict: Predict, env: TrialEnv, num_streams: int = 1, seed: int = 0) -> NDArray[np.float64]:
    """Returns `[G, num_streams, num_episodes]` of a policy in trials on each of the G environments of `env`.

    `predict(obs, state=STATE, episode_start=[BOOL])` answers an action and the next state, as models of
    Stable-Baselines3 do. The state is None, and `episode_start` true, at the start of a trial alone. Raises
    `ConfigError` for less than one stream."""
    refuse(num_streams < 1, f"num_streams={num_streams}: must be at least 1")
    returns = np.empty((len(env.envs), num_streams, env.num_episodes))
    for task, stream in np.ndindex(*returns.shape[:2]):
        obs, info = env.reset(seed=seed + task * num_streams + stream, options={"task": task})
        state, over, first = None, False, True
        while not over:
            action, state = predict(obs, state=state, episode_start=np.array([first]))
            obs, _, _, over, info = env.step(action)
            first = False
        returns[task, stream] = info["returns"]
    return returns
