"""Worlds whose state is a vector of numbers: tasks drawn once, starts, bounded actions and pictures. B streams."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box
from numpy.typing import NDArray
from torch import Tensor

from icrl.config.options import option
from icrl.envs.core import TASK_VISIBLE, EnvConfig, MapView, State, TensorEnv
from icrl.extensions.maps.render import FLOOR, Color, pillow
from icrl.randomness import mix, uniform

CANVAS = 240  # pixels of a side of a picture


class Canvas:
    """Picture of the square [-view, view]^2 of the plane, with y upwards: shapes in the units of a world."""

    def __init__(self, view: float) -> None:
        size = (2 * CANVAS, 2 * CANVAS)  # made half as large in the end: anti-aliased
        self._image = pillow("Image").new("RGB", size, FLOOR)
        self._draw, self._view, self._scale = pillow("ImageDraw").Draw(self._image), view, CANVAS / view

    def disc(self, centre: Sequence[float], radius: float, color: Color) -> None:
        self._draw.circle(self._pixels(centre), radius * self._scale, color)

    def line(self, points: Sequence[Sequence[float]], width: float, color: Color) -> None:
        pixels = [self._pixels(point) for point in points]
        self._draw.line(pixels, color, max(1, round(width * self._scale)), joint="curve")

    def picture(self) -> NDArray[np.uint8]:
        """The picture `[CANVAS, CANVAS, 3]`."""
        return np.asarray(self._image.resize((CANVAS, CANVAS), pillow("Image").Resampling.BOX))

    def _pixels(self, point: Sequence[float]) -> tuple[float, float]:
        x, y = point
        return (self._view + x) * self._scale, (self._view - y) * self._scale


class VectorConfig(EnvConfig):
    num_tasks: int = option(100, "tasks in all", ge=3, le=10**5)
    task_visible: bool = option(False, TASK_VISIBLE)

    former = {"tasks_seed": 0}


class VectorEnv(TensorEnv):
    """World whose inner state is n numbers, `[B, n]` float32. Subclasses set the attributes and give `move` and `draw`.

    A task is a row of numbers, `[B, task_dim]` float32. An episode starts uniformly in a box, at a point that is a
    function of the stream's seed and the number of the episode."""

    has_planner = False
    view: float  # half the side of a picture, in the world's units

    def __init__(self, config: VectorConfig, tasks: Tensor, start: tuple[float, ...]) -> None:
        """`tasks` `[num_tasks, task_dim]`; coordinate i of a start lies within `start[i]` around 0."""
        self._tasks, self._start, self._visible = tasks.float(), torch.tensor(start), config.task_visible

    def obs_box(self, *high: float) -> Box:
        """Space of observations whose coordinate i lies within `high[i]` around 0, with the task if it is visible."""
        self._num_shown = len(high)
        bounds = np.array([*high, *[math.inf] * len(self.task_columns) * self._visible], np.float32)
        return Box(-bounds, bounds)

    def all_tasks(self) -> Tensor:
        return self._tasks.cpu()

    def read_task(self, given: Sequence[Any]) -> list[float]:
        """Any finite numbers make a task."""
        try:
            task = np.array(given, np.float32)
        except (TypeError, ValueError):  # not made of numbers
            task = np.empty(0)
        if task.shape != (len(self.task_columns),) or not np.isfinite(task).all():
            raise ValueError(f"must be finite numbers ({', '.join(self.task_columns)})")
        return task.tolist()

    def task_numbers(self, tasks: Tensor) -> Tensor:
        return tasks

    def observation(self, state: State) -> Tensor:
        obs = super().observation(state)
        return torch.cat([obs, state.task], dim=-1) if self._visible else obs

    def start(self, task: Tensor, seed: Tensor, episode: Tensor) -> Tensor:
        """Inner state `[B, n]` where an episode starts."""
        coordinates = torch.arange(len(self._start), device=seed.device)
        return self._start * (2 * uniform(mix(seed, episode)[:, None], coordinates) - 1)

    def move(self, state: State, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Next inner state `[B, n]`, reward `[B]` float32 and whether the task ended, `[B]`."""
        raise NotImplementedError

    def bounded(self, action: Tensor) -> Tensor:
        """Action inside the bounds of its Box, which are the same in each dimension; NaN becomes 0."""
        space = self.spec.action_space
        assert isinstance(space, Box)
        return action.nan_to_num(0.0).clamp(float(space.low.min()), float(space.high.max()))

    def optimal_action(self, state: State) -> Tensor:
        return self.spec.unknown_action(state.timestep)

    def label(self, task: Tensor) -> str:
        return "_".join(f"{name}_{value:.4g}" for name, value in zip(self.task_columns, task.tolist(), strict=True))

    def fingerprint(self, tasks: Tensor) -> list[str]:
        return [str(task) for task in tasks.tolist()]

    def map_view(self, task: Tensor) -> MapView:
        """One cell: these worlds draw their own pictures."""
        return MapView(1, 1, ())

    def cell(self, obs: Tensor, action: Tensor) -> Tensor:
        return torch.zeros(obs.shape[:-1], dtype=torch.long)

    def pictures(self, task: Tensor, seed: int, episode: int, obs: Tensor, action: Tensor) -> list[Any]:
        frames = list[NDArray[np.uint8]]()
        for time in range(len(obs)):
            canvas = Canvas(self.view)
            self.draw(canvas, task, obs[: time + 1, : self._num_shown], action[:time])
            frames.append(canvas.picture())
        return frames

    def draw(self, canvas: Canvas, task: Tensor, obs: Tensor, action: Tensor) -> None:
        """Draw the last of the observations `obs` `[M + 1, n]` of an episode of `task` `[task_dim]` with M actions."""
        raise NotImplementedError
