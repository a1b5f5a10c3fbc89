"""A world of one's own as a Gymnasium class: a street with nine houses. The agent has to find one of them.

python -m src.pipeline env=gymnasium env.id=examples/my_world.py:Street env.max_episode_steps=12 env.width=0 \
  'env.tasks=[{house: 0}, {house: 1}, {house: 2}, {house: 3}, {house: 5}, {house: 6}, {house: 7}, {house: 8}]' \
  source=q_learning
"""

from typing import Any

import gymnasium
from gymnasium.spaces import Discrete


class Street(gymnasium.Env[int, int]):
    """Walk left (0) or right (1) from the middle; reward 1 and the end of the episode at the `house`, which no
    observation shows."""

    def __init__(self, house: int, length: int = 9) -> None:
        self.observation_space, self.action_space = Discrete(length), Discrete(2)
        self._house, self._length, self._place = house, length, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self._place = self._length // 2
        return self._place, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self._place = min(max(self._place + 2 * int(action) - 1, 0), self._length - 1)
        found = self._place == self._house
        return self._place, float(found), found, False, {}
