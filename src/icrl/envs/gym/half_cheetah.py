"""HalfCheetah-Vel: MuJoCo's HalfCheetah, which has to run at a velocity that no observation shows (Finn, Abbeel and
Levine, 2017, "Model-agnostic meta-learning for fast adaptation of deep networks", arXiv 1703.03400).

Needs MuJoCo: `pip install "gymnasium[mujoco]"`.
"""

from typing import Any

from gymnasium.envs.mujoco.half_cheetah_v5 import HalfCheetahEnv


class HalfCheetahVel(HalfCheetahEnv):
    """The reward for running at v_x with the action a in a task with the velocity v is -|v_x - v| - 0.05 ||a||^2."""

    def __init__(self, velocity: float = 1.0, **arguments: Any) -> None:
        super().__init__(ctrl_cost_weight=0.05, **arguments)
        self.velocity = velocity

    def _get_rew(self, x_velocity: float, action: Any) -> tuple[float, dict[str, float]]:
        parts = {"reward_forward": -abs(x_velocity - self.velocity), "reward_ctrl": -self.control_cost(action)}
        return sum(parts.values()), parts
