"""Episodes as moving pictures: single walks, and several side by side."""

from collections.abc import Iterator, Sequence
from math import isqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from icrl.contracts import Rollout
from icrl.envs.core import MapView, TensorEnv
from icrl.envs.render import caption, render_cells
from icrl.plots.video import Frame, Frames, tile

HOLD = 4  # frames for which the end of an episode stays
CELL, SMALLEST_CELL = 24, 4  # pixels of a cell, where the picture has room for them, and where it has not
CLIP, PICTURE = 480, 1280  # pixels of the longer side of a clip, and of all that play side by side, if cells allow
_AT_ONCE = 16  # frames that are in memory


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


class Film(NamedTuple):
    """Walks one after the other, each with its own trail and its end held: what its T frames of S cells show."""

    view: MapView
    cells: NDArray[np.int64]  # [T], where the agent stands
    rewarded: NDArray[np.bool_]  # [T]
    visited: NDArray[np.bool_]  # [T, S]
    title: str

    def draw(self, times: NDArray[np.int64], cell_pixels: int) -> Frames:
        """The frames at `times`; the last one stays."""
        at = np.minimum(times, len(self.cells) - 1)
        frames = render_cells(self.cells[at], self.view, cell_pixels, self.rewarded[at], self.visited[at])
        return caption(frames, self.title) if self.title else frames


def film(walks: Sequence[Walk], view: MapView, title: str = "") -> Film:
    cells, rewarded = (
        [np.pad(column, (0, HOLD), "edge") for column in columns] for columns in zip(*walks, strict=True)
    )
    everywhere = np.arange(view.rows * view.columns)
    trails = [np.logical_or.accumulate(walk[:, None] == everywhere, axis=0) for walk in cells]
    return Film(view, np.concatenate(cells), np.concatenate(rewarded), np.concatenate(trails), title)


def play(films: Sequence[Film], num_columns: int | None = None) -> Iterator[Frame]:
    """The frames of films of one view's size side by side (see `tile`), until the longest ends; one film fills the
    picture. They are drawn a few at a time, with cells as large as `CELL`, `CLIP` and `PICTURE` allow."""
    view, in_a_row = films[0].view, num_columns or isqrt(len(films) - 1) + 1
    room = min(CLIP, PICTURE // in_a_row) // max(view.rows, view.columns)
    cell_pixels = max(SMALLEST_CELL, min(CELL, room))
    num_frames = max(len(shown.cells) for shown in films)
    for start in range(0, num_frames, _AT_ONCE):
        times = np.arange(start, min(start + _AT_ONCE, num_frames))
        clips = [shown.draw(times, cell_pixels) for shown in films]
        yield from clips[0] if len(clips) == 1 else tile(clips, num_columns)


def side_by_side(rows: Sequence[tuple[str, Sequence[tuple[str, Walk]]]], view: MapView) -> Iterator[Frame]:
    """A grid of walks that play together: each row has a name and walks with captions; all rows are equally long."""
    films = [film([walk], view, f"{name}, {label}") for name, walks in rows for label, walk in walks]
    return play(films, num_columns=len(rows[0][1]))
