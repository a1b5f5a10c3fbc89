"""Episodes as moving pictures: single walks, and several side by side."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from src.contracts import Rollout
from src.envs.render import caption, render_cells
from src.evaluation.video import Frames, tile

HOLD = 4  # frames for which the end of an episode stays


class Walk(NamedTuple):
    """One episode of one stream: the cells it stood on, first to last, and where it was rewarded, `[length + 1]`."""

    cells: NDArray[np.int64]
    rewarded: NDArray[np.bool_]


def walks_of(transitions: Rollout, stream: int) -> list[Walk]:
    """The finished episodes of one stream of `[T, B]` transitions, in order; they must start with a reset."""
    columns = (
        transitions.obs,
        transitions.next_obs,
        transitions.reward,
        transitions.terminated | transitions.truncated,
    )
    obs, next_obs, reward, done = (column[:, stream].cpu().numpy() for column in columns)
    walks: list[Walk] = []
    start = 0
    for end in np.flatnonzero(done):
        cells = np.append(obs[start : end + 1], next_obs[end])
        walks.append(Walk(cells, np.append(False, reward[start : end + 1] > 0)))
        start = end + 1
    return walks


def film(walks: Sequence[Walk], goal: int, size: int, cell_pixels: int) -> Frames:
    """Walks one after the other, each with its own trail and its end held, `[T, H, W, 3]`."""
    clips = [render_cells(walk.cells, goal, size, cell_pixels, rewarded=walk.rewarded) for walk in walks]
    return np.concatenate([np.concatenate([clip, np.repeat(clip[-1:], HOLD, axis=0)]) for clip in clips])


def side_by_side(
    rows: Sequence[tuple[str, Sequence[tuple[str, Walk]]]], goal: int, size: int, cell_pixels: int = 24
) -> Frames:
    """A grid of walks that play together: each row has a name and walks with captions; all rows are equally long."""
    clips = [
        caption(film([walk], goal, size, cell_pixels), f"{name}, {label}")
        for name, walks in rows
        for label, walk in walks
    ]
    return tile(clips, num_columns=len(rows[0][1]))
