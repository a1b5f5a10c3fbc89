"""Gymnasium environment of a user's own: vectors, continuous actions, no success and no pictures."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box


class HiddenTarget(gymnasium.Env):
    """Point that must stand near a target (`x`, `y`) that no observation shows; the reward is minus the distance."""

    def __init__(self, x: float = 0.0, y: float = 0.0) -> None:
        self.observation_space, self.action_space = Box(-2.0, 2.0, (2,)), Box(-1.0, 1.0, (2,))
        self.target = np.array([x, y], np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        self.place = np.zeros(2, np.float32)
        return self.place, self._told()

    def step(self, action: Any):
        self.place = np.clip(self.place + 0.5 * np.asarray(action, np.float32), -2, 2)
        return self.place, -float(np.linalg.norm(self.place - self.target)), False, False, self._told()

    def _told(self) -> dict[str, Any]:
        return {"expert_action": np.clip((self.target - self.place) / 0.5, -1, 1)}
