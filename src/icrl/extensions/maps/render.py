"""Pictures of a map, one frame per step. T frames, S = rows * columns cells, P pixels a cell."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from icrl.config.modules import extra_module
from icrl.envs.core import MapView, TensorEnv

Frames = NDArray[np.uint8]  # [T, H, W, 3]
Color = tuple[int, int, int]

FLOOR: Color = (247, 245, 240)
GRID: Color = (221, 218, 209)
TRAIL: Color = (205, 222, 240)
GOALS: tuple[Color, ...] = ((240, 180, 41), (196, 85, 65))  # of a map, in their order, over and over
AGENT: Color = (35, 87, 160)
WALL: Color = (68, 74, 86)
REWARDED: Color = (46, 160, 67)
CAPTION: Color = (28, 31, 38)
CAPTION_TEXT: Color = (240, 240, 240)
SMALLEST_FONT = 6.0


def pillow(part: str) -> Any:
    """Module of Pillow, which acting does without."""
    return extra_module(f"PIL.{part}", "a picture")


def render_cells(
    cells: NDArray[np.integer[Any]],
    view: MapView,
    cell_pixels: int = 24,
    rewarded: NDArray[np.bool_] | None = None,
    visited: NDArray[np.bool_] | None = None,
) -> Frames:
    """Draw a clip of a map, `[T, H, W, 3]`; H and W are even, as video encoders want it.

    The agent stands on cell `cells[t]` in frame t, nowhere if that is -1. The wall is green where `rewarded` `[T]` is
    true. Cells in `visited` `[T, S]` are shaded; by default those the clip has shown up to frame t."""
    agent = cells[:, None] == np.arange(view.rows * view.columns)  # [T, S]
    if visited is None:
        visited = np.logical_or.accumulate(agent, axis=0)
    kind = visited.astype(np.int64)  # [T, S], an index into `kinds`: floor, trail, goals; then the same with the agent
    kind[:, list(view.goals)] = 2 + np.arange(len(view.goals)) % len(GOALS)
    kind += (2 + len(GOALS)) * agent
    kinds = np.tile(np.array([FLOOR, TRAIL, *GOALS], float)[:, None, None], (1, cell_pixels, cell_pixels, 1))
    kinds[:, -1] = kinds[:, :, -1] = GRID
    away = np.arange(cell_pixels) - (cell_pixels - 2) / 2  # from the centre; the last row and column are the grid
    cover = np.clip(0.36 * cell_pixels - np.hypot(away[:, None], away) + 0.5, 0, 1)[..., None]  # anti-aliased disc
    kinds = np.concatenate([kinds, (1 - cover) * kinds + cover * np.array(AGENT)]).round().astype(np.uint8)
    floor = kinds[kind.reshape(-1, view.rows, view.columns)]  # [T, row, column, P, P, 3]
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
    """Put `text` on a dark strip of `height` pixels above the frames, in letters that shrink until it fits."""
    width, font_size, font = frames.shape[2], 0.6 * height, pillow("ImageFont").load_default
    while font_size > SMALLEST_FONT and font(font_size).getlength(text) > width - height // 2:
        font_size *= 0.9
    strip = pillow("Image").new("RGB", (width, height), CAPTION)
    place = (width / 2, height / 2)
    pillow("ImageDraw").Draw(strip).text(place, text, CAPTION_TEXT, font(font_size), anchor="mm")
    above = np.broadcast_to(np.asarray(strip), (len(frames), height, width, 3))
    return np.concatenate([above, frames], axis=1)


def not_filmed(env: TensorEnv) -> str:
    """Reason why a world can be shown neither by pictures of its own nor as a map, which it gives as `not_filmed`;
    empty if it can."""
    if type(env).map_view is TensorEnv.map_view:
        return f"{type(env).__name__} has no method map_view"
    return getattr(env, "not_filmed", "")


def pictures_of(env: TensorEnv, task: Tensor, seed: int, episode: int, obs: Tensor, action: Tensor) -> list[Any]:
    """Pictures `[H, W, 3]` of an episode of the stream with `seed` of `task` `[task_dim]`, with its M + 1 observations
    and M actions, drawn by the method `pictures` of the world; empty if it has none, and is drawn as a map. Raises
    `PipelineError` if the world cannot draw it."""
    pictures = getattr(env, "pictures", None)
    return pictures(task, seed, episode, obs, action) if pictures else []
