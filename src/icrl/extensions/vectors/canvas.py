"""Pictures of the plane."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icrl.config.modules import extra_module

Color = tuple[int, int, int]

FLOOR: Color = (247, 245, 240)
GRID: Color = (221, 218, 209)
TRAIL: Color = (205, 222, 240)
GOALS: tuple[Color, ...] = ((240, 180, 41), (196, 85, 65))
AGENT: Color = (35, 87, 160)
WALL: Color = (68, 74, 86)
CANVAS = 240  # pixels of a side


def _pillow(part: str) -> Any:
    """Module of Pillow, which acting does without."""
    return extra_module(f"PIL.{part}", "a picture")


class Canvas:
    """Picture of the square [-view, view]^2 of the plane, with y upwards: shapes in the units of a world."""

    def __init__(self, view: float) -> None:
        size = (2 * CANVAS, 2 * CANVAS)  # made half as large in the end: anti-aliased
        self._image = _pillow("Image").new("RGB", size, FLOOR)
        self._draw, self._view, self._scale = _pillow("ImageDraw").Draw(self._image), view, CANVAS / view

    def disc(self, centre: Sequence[float], radius: float, color: Color) -> None:
        self._draw.circle(self._pixels(centre), radius * self._scale, color)

    def line(self, points: Sequence[Sequence[float]], width: float, color: Color) -> None:
        pixels = [self._pixels(point) for point in points]
        self._draw.line(pixels, color, max(1, round(width * self._scale)), joint="curve")

    def picture(self) -> NDArray[np.uint8]:
        """The picture `[CANVAS, CANVAS, 3]`."""
        return np.asarray(self._image.resize((CANVAS, CANVAS), _pillow("Image").Resampling.BOX))

    def _pixels(self, point: Sequence[float]) -> tuple[float, float]:
        x, y = point
        return (self._view + x) * self._scale, (self._view - y) * self._scale
