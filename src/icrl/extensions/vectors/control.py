"""Classic control with hidden physics: the cart pole and the pendulum of Gymnasium, with constants drawn for each task.

With Gymnasium's constants both equal its CartPole-v1 and Pendulum-v1 step by step, up to the rounding of float32.
"""

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor

from icrl.config.options import option
from icrl.envs.core import NAME, State, world
from icrl.extensions.maps.render import AGENT, GOALS, GRID, TRAIL, WALL
from icrl.extensions.vectors.world import Canvas, VectorConfig, VectorEnv
from icrl.spaces import EnvSpec

CART_POLE = {"length": 0.5, "pole_mass": 0.1, "cart_mass": 1.0, "gravity": 9.8, "force": 10.0}
CART_LIMIT, POLE_LIMIT = 2.4, 12 * math.pi / 180  # an episode ends beyond them
CART_TIME = 0.02  # seconds of a step
PENDULUM = {"gravity": 10.0, "mass": 1.0, "length": 1.0, "torque": 1.0}
MAX_TORQUE, MAX_SPEED = 2.0, 8.0
PENDULUM_TIME = 0.05


class PhysicsConfig(VectorConfig):
    max_episode_steps: int = option(200, "env steps after which an episode is truncated", ge=1, le=10000)
    spread: float = option(
        1.5,
        "each constant is Gymnasium's times a factor drawn log-uniformly from [1/spread, spread]",
        gt=1,
        le=4,
    )
    hide_velocity: bool = option(
        False, "leave velocities out of observations, so that one step does not show the state"
    )

    former = {"flip": True}


class CartPoleConfig(PhysicsConfig):
    name: Literal["cart_pole"] = option("cart_pole", NAME)


class PendulumConfig(PhysicsConfig):
    name: Literal["pendulum"] = option("pendulum", NAME)


class Physics(VectorEnv):
    """World whose tasks are physical constants, above 0 but for the last one: in every other task it is below 0, so the
    action pushes the other way."""

    def __init__(self, config: PhysicsConfig, constants: dict[str, float], start: tuple[float, ...]) -> None:
        generator = torch.Generator().manual_seed(0)
        power = 2 * torch.rand(config.num_tasks, len(constants), generator=generator, dtype=torch.float64) - 1
        tasks = torch.tensor(list(constants.values()), dtype=torch.float64) * config.spread**power
        tasks[1::2, -1] *= -1
        super().__init__(config, tasks, start)

    def read_task(self, given: Sequence[Any]) -> list[float]:
        task = super().read_task(given)
        if min(task[:-1]) <= 0:
            raise ValueError(f"must be above 0 ({', '.join(self.task_columns[:-1])})")
        return task


@world("cart_pole", CartPoleConfig)
class CartPole(Physics):
    """Keep a pole upright on a cart (Barto, Sutton and Anderson, 1983): reward 1 for each step until it falls.

    State and observation are x, its velocity, the pole's angle and its velocity (x and the angle with
    `env.hide_velocity`). Action 1 pushes with `force` newtons,
    action 0 with minus as much. A task is half the pole's length, the masses of pole and cart, the gravity and the
    force, `[B, 5]`. An episode succeeds if it lasts until the time limit."""

    task_columns = tuple(CART_POLE)
    view = 2.6

    def __init__(self, config: CartPoleConfig) -> None:
        super().__init__(config, CART_POLE, (0.05,) * 4)
        self._shown = slice(None, None, 2 if config.hide_velocity else 1)
        obs = self.obs_box(*(2 * CART_LIMIT, math.inf, 2 * POLE_LIMIT, math.inf)[self._shown])
        # No step pays 0, but the first observation of a stream comes with that reward.
        self.spec = EnvSpec(obs, Discrete(2), (0.0, 1.0), 0, config.max_episode_steps, "survival")

    def observe(self, inner: Tensor) -> Tensor:
        return inner[..., self._shown]

    def move(self, state: State, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Euler step of the equations of Florian (2005, https://coneural.org/florian/papers/05_cart_pole.pdf)."""
        length, pole_mass, cart_mass, gravity, force = state.task.unbind(-1)
        x, velocity, angle, spin = state.inner.unbind(-1)
        cosine, sine, total = angle.cos(), angle.sin(), cart_mass + pole_mass
        push = (force * (2 * action - 1) + pole_mass * length * spin * spin * sine) / total
        twist = (gravity * sine - cosine * push) / (length * (4 / 3 - pole_mass * cosine * cosine / total))
        pull = push - pole_mass * length * twist * cosine / total
        x, velocity = x + CART_TIME * velocity, velocity + CART_TIME * pull
        angle, spin = angle + CART_TIME * spin, spin + CART_TIME * twist
        fallen = (x.abs() > CART_LIMIT) | (angle.abs() > POLE_LIMIT)
        return torch.stack([x, velocity, angle, spin], dim=-1), torch.ones_like(x), fallen

    def draw(self, canvas: Canvas, task: Tensor, obs: Tensor, action: Tensor) -> None:
        x, angle = (obs[-1] if obs.shape[-1] == 2 else obs[-1, ::2]).tolist()
        height, reach = -0.6, 2 * float(task[0])
        canvas.line([(-CART_LIMIT, height), (CART_LIMIT, height)], 0.04, GRID)
        canvas.line([(x - 0.35, height), (x + 0.35, height)], 0.4, WALL)
        top = x + reach * math.sin(angle), height + reach * math.cos(angle)
        canvas.line([(x, height), top], 0.14, AGENT)
        if len(action):
            side = math.copysign(1.0, float(task[-1]) * (2 * float(action[-1]) - 1))
            canvas.line([(x + 0.4 * side, height), (x + 0.7 * side, height)], 0.1, GOALS[1])


@world("pendulum", PendulumConfig)
class Pendulum(Physics):
    """Swing a pendulum up and hold it there, by a torque that is too weak to lift it at once.

    The state is the angle from upright and its velocity; the observation is cosine, sine and velocity (without the last
    one with `env.hide_velocity`). An action is a number in [-2, 2], which acts times `torque`. A task is gravity, mass,
    length and torque, `[B, 4]`. The reward is minus (angle^2 + 0.1 velocity^2 + 0.001 action^2). An episode succeeds if
    its last reward is at least -0.1."""

    task_columns = tuple(PENDULUM)
    view = 1.7

    def __init__(self, config: PendulumConfig) -> None:
        super().__init__(config, PENDULUM, (math.pi, 1.0))
        high = (1.0, 1.0) if config.hide_velocity else (1.0, 1.0, MAX_SPEED)
        spaces = self.obs_box(*high), Box(-MAX_TORQUE, MAX_TORQUE, (1,))
        self.spec = EnvSpec(*spaces, (), 0, config.max_episode_steps, "final_reward", success_return=-0.1)

    def observe(self, inner: Tensor) -> Tensor:
        angle, spin = inner.unbind(-1)
        return torch.stack([angle.cos(), angle.sin(), spin][: self._num_shown], dim=-1)

    def move(self, state: State, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        gravity, mass, length, torque = state.task.unbind(-1)
        (angle, spin), push = state.inner.unbind(-1), self.bounded(action)[..., 0]
        away = (angle + math.pi).remainder(2 * math.pi) - math.pi
        reward = -(away * away + 0.1 * spin * spin + 0.001 * push * push)
        twist = 3 * gravity / (2 * length) * angle.sin() + 3 / (mass * length * length) * torque * push
        spin = (spin + twist * PENDULUM_TIME).clamp(-MAX_SPEED, MAX_SPEED)
        inner = torch.stack([angle + spin * PENDULUM_TIME, spin], dim=-1)
        return inner, reward, torch.zeros_like(away, dtype=torch.bool)

    def draw(self, canvas: Canvas, task: Tensor, obs: Tensor, action: Tensor) -> None:
        cosine, sine = obs[-1, :2].tolist()
        reach = float(task[2])
        canvas.line([(0.0, 0.0), (0.0, reach)], 0.03, GRID)
        canvas.line([(0.0, 0.0), (reach * sine, reach * cosine)], 0.16, AGENT)
        canvas.disc((0.0, 0.0), 0.06, WALL)
        if len(action):  # the bar shows the torque: to the right if it turns the pendulum clockwise
            push = float(task[-1] * self.bounded(action[-1])) / MAX_TORQUE
            canvas.line([(0.0, -1.55), (push, -1.55)], 0.1, GOALS[1] if push else TRAIL)
