"""Episodes as moving pictures: single walks, and several side by side."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from src.contracts import Rollout
from src.envs.base import Scene, TensorEnv
from src.envs.render import caption, render_cells
from src.evaluation.video import Frames, tile

HOLD = 4  # frames for which the end of an episode stays


class Walk(NamedTuple):
    """One episode of one stream: the cells it stood on, first to last, and where it was rewarded, `[length + 1]`."""

    cells: NDArray[np.int64]
    rewarded: NDArray[np.bool_]


def walks_of(env: TensorEnv, transitions: Rollout, stream: int) -> list[Walk]:
    """The finished episodes of one stream of `[T, B]` transitions, in order; they must start with a reset."""
    transitions = Rollout(*(column[:, stream].cpu() for column in transitions))
    before = env.cell(transitions.obs, transitions.action).numpy()
    after = env.cell(transitions.next_obs, transitions.action).numpy()
    rewarded = np.array(env.spec.reward_values)[transitions.reward.numpy()] > 0
    walks: list[Walk] = []
    start = 0
    for end in np.flatnonzero(transitions.terminated | transitions.truncated):
        steps = slice(start, end + 1)
        walks.append(Walk(np.append(before[start], after[steps]), np.append(False, rewarded[steps])))
        start = end + 1
    return walks


def film(walks: Sequence[Walk], scene: Scene, cell_pixels: int) -> Frames:
    """Walks one after the other, each with its own trail and its end held, `[T, H, W, 3]`."""
    clips = [render_cells(walk.cells, scene, cell_pixels=cell_pixels, rewarded=walk.rewarded) for walk in walks]
    return np.concatenate([np.concatenate([clip, np.repeat(clip[-1:], HOLD, axis=0)]) for clip in clips])


def side_by_side(rows: Sequence[tuple[str, Sequence[tuple[str, Walk]]]], scene: Scene, cell_pixels: int = 24) -> Frames:
    """A grid of walks that play together: each row has a name and walks with captions; all rows are equally long."""
    clips = [
        caption(film([walk], scene, cell_pixels), f"{name}, {label}") for name, walks in rows for label, walk in walks
    ]
    return tile(clips, num_columns=len(rows[0][1]))
