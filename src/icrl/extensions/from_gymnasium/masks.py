"""Legal actions of Gymnasium environments, which say them in `info["action_mask"]`, as a part of observations."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete, Space
from numpy.typing import NDArray

from icrl.extensions.from_gymnasium.border import obs_space, read_obs


class ActionMask(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wrapper whose observations end with a flag for each action, 1 where it is legal (`EnvSpec.action_mask`).

    It makes of integers a MultiDiscrete, and of a vector a longer one. An observation that
    ends an episode needs no mask: all flags are 1 then. Raises `ValueError` for spaces that have no flags, and for a
    mask that is missing, of the wrong size, or without a legal action."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        if not isinstance(env.action_space, Discrete):
            raise ValueError(f"env.action_mask=true: actions {env.action_space} have no mask: must be Discrete")
        self._plain, self._num_actions = obs_space(env.observation_space), int(env.action_space.n)
        self.observation_space = with_flags(self._plain, self._num_actions)

    def reset(self, **given: Any) -> tuple[NDArray[Any], dict[str, Any]]:
        obs, info = self.env.reset(**given)
        return self._with_flags(obs, info, False), info

    def step(self, action: Any) -> tuple[NDArray[Any], Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        return self._with_flags(obs, info, terminated or truncated), reward, terminated, truncated, info

    def _with_flags(self, obs: Any, info: dict[str, Any], ended: bool) -> NDArray[Any]:
        given = info.get("action_mask", "missing")
        flags = np.asarray(given).astype(bool)
        if flags.shape != (self._num_actions,) or not flags.any():
            if not ended:
                allowed = f"must be {self._num_actions} flags, of which at least one is 1"
                raise ValueError(f"env.action_mask=true: info['action_mask'] is {given}: {allowed}")
            flags = np.ones(self._num_actions, dtype=bool)  # no action follows, but a best value must exist
        return np.append(read_obs(obs, self._plain), flags).astype(self.observation_space.dtype)


def with_flags(space: Space[Any], num_actions: int) -> Space[Any]:
    """Space of observations in `space` that end with a flag for each action, see `EnvSpec.action_mask`. Raises
    `ValueError` for images."""
    if isinstance(space, Discrete | MultiDiscrete):
        sizes = np.atleast_1d(space.nvec if isinstance(space, MultiDiscrete) else space.n)
        return MultiDiscrete([*sizes, *[2] * num_actions])
    if isinstance(space, Box) and len(space.shape) == 1:
        low, high = (np.append(bound, [end] * num_actions) for bound, end in ((space.low, 0), (space.high, 1)))
        return Box(low.astype(np.float32), high.astype(np.float32))
    raise ValueError(f"observations {space} cannot hold flags of legal actions: must be integers or a vector")
