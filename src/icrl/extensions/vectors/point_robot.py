"""Point robot: a point in the plane has to find a hidden goal (Rakelly et al., 2019, "Efficient off-policy
meta-reinforcement learning via probabilistic context variables", arXiv 1903.08254).
"""

import math
from typing import Literal

import torch
from gymnasium.spaces import Box
from torch import Tensor

from icrl.config.options import option
from icrl.envs.core import NAME, State, world
from icrl.extensions.maps.render import AGENT, GOALS, GRID, TRAIL
from icrl.extensions.vectors.world import Canvas, VectorConfig, VectorEnv
from icrl.spaces import EnvSpec

SPEED = 0.1  # largest distance of a step along an axis
RADIUS = 0.2  # of the region around the goal


class PointRobotConfig(VectorConfig):
    name: Literal["point_robot"] = option("point_robot", NAME)
    reward: Literal["dense", "sparse"] = option(
        "dense", f"dense: minus the distance to the goal; sparse: 1 within {RADIUS} of the goal, else 0"
    )

    former = {"goals": "semicircle"}


@world("point_robot", PointRobotConfig)
class PointRobot(VectorEnv):
    """The state and the observation are the position (x, y); episodes start in the origin, and goals lie on the upper
    half of the unit circle.

    An action moves the point by `SPEED` times its two numbers in [-1, 1]. A task is the goal (x, y), `[B, 2]`. With
    dense rewards an episode succeeds if it ends within `RADIUS` of the goal, with sparse ones if it gets there."""

    task_columns = ("goal_x", "goal_y")
    has_planner = True
    view = 1.3

    def __init__(self, config: PointRobotConfig) -> None:
        generator = torch.Generator().manual_seed(0)
        angle = math.pi * torch.rand(config.num_tasks, generator=generator, dtype=torch.float64)
        super().__init__(config, torch.stack([angle.cos(), angle.sin()], dim=1), (0.0, 0.0))
        self._sparse = config.reward == "sparse"
        values, success, least = ((0.0, 1.0), "reward", 0.0) if self._sparse else ((), "final_reward", -RADIUS)
        spaces = self.obs_box(math.inf, math.inf), Box(-1.0, 1.0, (2,))
        self.spec = EnvSpec(*spaces, values, 0, config.max_episode_steps, success, success_return=least)

    def move(self, state: State, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        place = state.inner + SPEED * self.bounded(action)
        x, y = (place - state.task).unbind(-1)
        distance = (x * x + y * y).sqrt()
        reward = (distance <= RADIUS).float() if self._sparse else -distance
        return place, reward, torch.zeros_like(distance, dtype=torch.bool)

    def optimal_action(self, state: State) -> Tensor:
        """Along each axis straight to the goal at full speed, then nothing: no policy is nearer to the goal along an
        axis at any time, so none is nearer at any time."""
        return ((state.task - state.inner) / SPEED).clamp(-1.0, 1.0)

    def draw(self, canvas: Canvas, task: Tensor, obs: Tensor, action: Tensor) -> None:
        canvas.line([(math.cos(i * math.pi / 32), math.sin(i * math.pi / 32)) for i in range(33)], 0.02, GRID)
        goal, path = task.tolist(), obs.tolist()
        canvas.disc(goal, RADIUS, GOALS[0])
        canvas.line(path, 0.04, TRAIL)
        for place in path[:-1]:
            canvas.disc(place, 0.03, TRAIL)
        canvas.disc(path[-1], 0.07, AGENT)
