"""Pictures of a view, one frame a step.

A frame is a mosaic of few kinds of cells (floor, trail, goals, each with and without the agent), so the kinds are drawn
once and all frames are one gather. T frames, S = rows * columns cells, P pixels a cell.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from icrl.envs.core import MapView

Frames = NDArray[np.uint8]  # [T, H, W, 3]
Ints = NDArray[np.integer[Any]]
Color = tuple[int, int, int]

FLOOR: Color = (247, 245, 240)
GRID: Color = (221, 218, 209)
TRAIL: Color = (205, 222, 240)
GOALS: tuple[Color, ...] = ((240, 180, 41), (196, 85, 65))  # of a view, in their order, over and over
AGENT: Color = (35, 87, 160)
WALL: Color = (68, 74, 86)
REWARDED: Color = (46, 160, 67)
CAPTION: Color = (28, 31, 38)
CAPTION_TEXT: Color = (240, 240, 240)
SMALLEST_FONT = 6.0

_FLOOR_KIND, _TRAIL_KIND, _FIRST_GOAL_KIND = range(3)
_NUM_KINDS = _FIRST_GOAL_KIND + len(GOALS)


def render_cells(
    cells: Ints,
    view: MapView,
    cell_pixels: int = 24,
    rewarded: NDArray[np.bool_] | None = None,
    visited: NDArray[np.bool_] | None = None,
) -> Frames:
    """Draw a clip of a view, `[T, H, W, 3]`; H and W are even, as video encoders want it.

    The agent stands on cell `cells[t]` in frame t, nowhere where that is -1. The wall turns green where `rewarded`
    `[T]` is true. Cells in `visited` `[T, S]` are shaded; by default those the clip has shown up to frame t.
    """
    here = cells[:, None] == np.arange(view.rows * view.columns)  # [T, S]
    if visited is None:
        visited = np.logical_or.accumulate(here, axis=0)
    kind = np.where(visited, _TRAIL_KIND, _FLOOR_KIND)  # [T, S]
    kind[:, list(view.goals)] = _FIRST_GOAL_KIND + np.arange(len(view.goals)) % len(GOALS)
    kind += _NUM_KINDS * here
    floor = _cells(cell_pixels)[kind.reshape(-1, view.rows, view.columns)]  # [T, row, column, P, P, 3]
    height, width = view.rows * cell_pixels, view.columns * cell_pixels
    floor = floor.swapaxes(2, 3).reshape(len(cells), height, width, 3)

    wall = max(2, cell_pixels // 4)
    frames = np.empty((len(cells), height + height % 2 + 2 * wall, width + width % 2 + 2 * wall, 3), dtype=np.uint8)
    frames[:] = WALL
    if rewarded is not None:
        frames[rewarded] = REWARDED
    frames[:, wall : wall + height, wall : wall + width] = floor
    return frames


def caption(frames: Frames, text: str, height: int = 22) -> Frames:
    """Put `text` on a dark strip of `height` pixels above the frames; its letters shrink until the line fits, but not
    to what nobody could read."""
    width = frames.shape[2]
    font_size = 0.6 * height
    while font_size > SMALLEST_FONT and ImageFont.load_default(font_size).getlength(text) > width - height // 2:
        font_size *= 0.9
    strip = Image.new("RGB", (width, height), CAPTION)
    draw = ImageDraw.Draw(strip)
    draw.text((width / 2, height / 2), text, CAPTION_TEXT, ImageFont.load_default(font_size), anchor="mm")
    above = np.broadcast_to(np.asarray(strip), (len(frames), height, width, 3))
    return np.concatenate([above, frames], axis=1)


def _cells(pixels: int) -> Frames:
    """The kinds of cells, `[2 * kinds, P, P, 3]`: without the agent, then with it."""
    kinds = np.empty((_NUM_KINDS, pixels, pixels, 3))
    kinds[_FLOOR_KIND] = FLOOR
    kinds[_TRAIL_KIND] = TRAIL
    kinds[_FIRST_GOAL_KIND:] = np.array(GOALS)[:, None, None]
    kinds[:, -1] = kinds[:, :, -1] = GRID
    centre = (pixels - 2) / 2  # the last row and column are the grid
    away = np.arange(pixels) - centre
    distance = np.hypot(away[:, None], away)
    cover = np.clip(0.36 * pixels - distance + 0.5, 0, 1)[..., None]  # anti-aliased disc
    with_agent = (1 - cover) * kinds + cover * np.array(AGENT)
    return np.concatenate([kinds, with_agent]).round().astype(np.uint8)
