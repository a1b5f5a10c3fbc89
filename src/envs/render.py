"""Pictures of a room, one frame a step.

A frame is a mosaic of few kinds of cells (floor, trail, goal, each with and without the agent), so the kinds are drawn
once and all frames are one gather. T frames, S = size * size cells, P pixels a cell.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

Frames = NDArray[np.uint8]  # [T, H, W, 3]
Ints = NDArray[np.integer[Any]]
Color = tuple[int, int, int]

FLOOR: Color = (247, 245, 240)
GRID: Color = (221, 218, 209)
TRAIL: Color = (205, 222, 240)
GOAL: Color = (240, 180, 41)
AGENT: Color = (35, 87, 160)
WALL: Color = (68, 74, 86)
REWARDED: Color = (46, 160, 67)
CAPTION: Color = (28, 31, 38)
CAPTION_TEXT: Color = (240, 240, 240)
SMALLEST_FONT = 6.0

_FLOOR_KIND, _TRAIL_KIND, _GOAL_KIND, _NUM_KINDS = range(4)


def render_cells(
    obs: Ints,
    goal: int,
    size: int,
    cell_pixels: int = 24,
    rewarded: NDArray[np.bool_] | None = None,
    visited: NDArray[np.bool_] | None = None,
) -> Frames:
    """Draw a clip of a `size` x `size` room, `[T, H, W, 3]`; H = W is even, as video encoders want it.

    The agent stands on cell `obs[t]` in frame t. The wall turns green where `rewarded` `[T]` is true. Cells in
    `visited` `[T, S]` are shaded; by default those the clip has shown up to frame t.
    """
    if visited is None:
        shown = np.zeros((len(obs), size * size), dtype=bool)
        shown[np.arange(len(obs)), obs] = True
        visited = np.logical_or.accumulate(shown, axis=0)
    kind = np.where(visited, _TRAIL_KIND, _FLOOR_KIND)  # [T, S]
    kind[:, goal] = _GOAL_KIND
    kind[np.arange(len(obs)), obs] += _NUM_KINDS
    room = _cells(cell_pixels)[kind.reshape(-1, size, size)]  # [T, row, column, P, P, 3]
    room = room.swapaxes(2, 3).reshape(len(obs), size * cell_pixels, size * cell_pixels, 3)

    wall = max(2, cell_pixels // 4)
    side = size * cell_pixels + 2 * wall
    frames = np.empty((len(obs), side + side % 2, side + side % 2, 3), dtype=np.uint8)
    frames[:] = WALL
    if rewarded is not None:
        frames[rewarded] = REWARDED
    frames[:, wall : wall + room.shape[1], wall : wall + room.shape[2]] = room
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
    kinds[_GOAL_KIND] = FLOOR
    kinds[:, -1] = kinds[:, :, -1] = GRID
    kinds[_GOAL_KIND, :-1, :-1] = GOAL
    centre = (pixels - 2) / 2  # the last row and column are the grid
    away = np.arange(pixels) - centre
    distance = np.hypot(away[:, None], away)
    cover = np.clip(0.36 * pixels - distance + 0.5, 0, 1)[..., None]  # anti-aliased disc
    with_agent = (1 - cover) * kinds + cover * np.array(AGENT)
    return np.concatenate([kinds, with_agent]).round().astype(np.uint8)
