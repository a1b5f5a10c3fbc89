"""Curve of a life that grows below its film, episode by episode. Drawn without matplotlib, which takes far longer."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from icrl.extensions.maps.render import AGENT, FLOOR, GRID, WALL, Color
from icrl.plots.style import Frame

_SINGLE = 50  # episodes of which each has a point of its own
_SMALLEST = 48  # pixels of the height
_LETTERS = 10  # pixels of letters
_LEFT, _RIGHT, _TOP, _BOTTOM = 34, 10, 22, 18  # pixels around the axes
_DASH, _GAP = 8, 6  # pixels of a dashed line, at twice the size
_GREY: Color = (110, 110, 110)


class GrowingCurve(NamedTuple):
    """Return of each episode of a life, in a long one the mean of the latest few, and those of references as horizontal
    lines, on an axis with `bounds`."""

    returns: Sequence[float]
    references: Mapping[str, float]
    bounds: tuple[float, float]

    def draw(self, count: int, width: int) -> Frame:
        """Picture `[height, width, 3]`, both even, of the first `count` episodes; its axes have room for all."""
        height, size = max(_SMALLEST, 2 * round(width / 5)), len(self.returns)
        image = Image.new("RGB", (2 * width, 2 * height), FLOOR)  # made half as large: anti-aliased
        draw = ImageDraw.Draw(image)
        low, high = self.bounds if self.bounds[0] < self.bounds[1] else (self.bounds[0] - 0.5, self.bounds[0] + 0.5)

        font, end = ImageFont.load_default(_LETTERS), width - _RIGHT
        end -= math.ceil(max((font.getlength(name) for name in self.references), default=0))  # names are beside it

        def across(episode: int) -> float:
            return _LEFT + (episode - 1) / max(size - 1, 1) * (end - _LEFT)

        def up(value: float) -> float:
            return _TOP + (high - value) / (high - low) * (height - _TOP - _BOTTOM)

        left, right, bottom = 2 * (_LEFT - 4), 2 * (end + 4), 2 * (height - _BOTTOM + 4)
        draw.line([(left, 2 * (_TOP - 6)), (left, bottom), (right, bottom)], GRID, 3)
        for value in self.references.values():
            for start in range(left, right, _DASH + _GAP):
                draw.line([(start, 2 * up(value)), (min(start + _DASH, right), 2 * up(value))], _GREY, 2)
        means = [np.mean(self.returns[max(0, end - self._window) : end]) for end in range(1, min(count, size) + 1)]
        points = [(2 * across(episode), 2 * up(float(value))) for episode, value in enumerate(means, start=1)]
        if len(points) > 1:
            draw.line(points, AGENT, 4, joint="curve")
        for point in points:
            draw.circle(point, 5, AGENT)
        image = image.resize((width, height), Image.Resampling.BOX)
        write = ImageDraw.Draw(image)
        for place, text, anchor in self._labels(end, height, up):
            write.text(place, text, WALL if anchor != "lm" else _GREY, font, anchor=anchor)
        return np.asarray(image)

    @property
    def _window(self) -> int:
        return -(-len(self.returns) // _SINGLE)

    def _labels(
        self, end: int, height: int, up: Callable[[float], float]
    ) -> Iterator[tuple[tuple[float, float], str, str]]:
        """Place, text and anchor of all words."""
        yield (2, 2), "return" if self._window == 1 else f"return, mean of {self._window}", "lt"
        for value in {*self.bounds}:
            yield (_LEFT - 7, up(value)), f"{value:.3g}", "rm"
        yield (_LEFT, height - 2), "1", "mb"
        yield (end + 4, height - 2), f"episode {len(self.returns)}", "rb"
        for name, value in self.references.items():
            yield (end + 6, up(value)), name, "lm"
