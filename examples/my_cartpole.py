"""A world of one's own with vectors: a cart pole with a weaker or stronger push, and buttons that may be swapped.

python -m src.pipeline experiment=expert env=gymnasium env.id=examples/my_cartpole.py:CartPole \
  env.max_episode_steps=200 env.success=survival \
  'env.tasks={random: {push: [5.0, 15.0], swapped: [false, true]}, count: 30}' \
  source.videos_per_task=0 evaluation.videos=false
"""

from typing import Any

from gymnasium.envs.classic_control.cartpole import CartPoleEnv


class CartPole(CartPoleEnv):
    """Gymnasium's cart pole with a force of `push` newtons, to the other side if the buttons are `swapped`."""

    def __init__(self, push: float, swapped: bool) -> None:
        super().__init__()
        self.force_mag, self._swapped = push, swapped

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return super().step(1 - action if self._swapped else action)
