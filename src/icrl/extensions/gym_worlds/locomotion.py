"""MuJoCo's HalfCheetah and Ant with a hidden task, which no observation shows: a velocity to run at (Finn, Abbeel and
Levine, 2017, "Model-agnostic meta-learning for fast adaptation of deep networks", arXiv 1703.03400), or a direction to
run in (Rakelly et al., 2019, "Efficient off-policy meta-reinforcement learning via probabilistic context variables",
arXiv 1903.08254).

Needs MuJoCo: `pip install "gymnasium[mujoco]"`.
"""

from math import cos, sin
from typing import Any

from gymnasium.envs.mujoco.ant_v5 import AntEnv
from gymnasium.envs.mujoco.half_cheetah_v5 import HalfCheetahEnv


class HalfCheetahVel(HalfCheetahEnv):
    """The reward for running at v_x with the action a in a task with the velocity v is -|v_x - v| - 0.05 ||a||^2."""

    def __init__(self, velocity: float = 1.0, **arguments: Any) -> None:
        super().__init__(ctrl_cost_weight=0.05, **arguments)
        self.velocity = velocity

    def _get_rew(self, x_velocity: float, action: Any) -> tuple[float, dict[str, float]]:
        parts = {"reward_forward": -abs(x_velocity - self.velocity), "reward_ctrl": -self.control_cost(action)}
        return sum(parts.values()), parts


class AntDir(AntEnv):
    """Ant-v5 whose forward reward is v_x cos(direction) + v_y sin(direction), with the direction in radians; its other
    rewards and its falls are those of Ant-v5. Observations have no contact forces."""

    def __init__(self, direction: float = 0.0, **arguments: Any) -> None:
        super().__init__(include_cfrc_ext_in_observation=False, **arguments)
        self.direction = direction

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = super().step(action)
        forward = info["x_velocity"] * cos(self.direction) + info["y_velocity"] * sin(self.direction)
        reward += forward - info["reward_forward"]
        return obs, reward, terminated, truncated, info | {"reward_forward": forward}
