"""Films of episodes: single walks, several side by side, and lives."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import groupby, pairwise
from math import isqrt
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from tqdm import tqdm

from icrl.contracts import PipelineError, Rollout
from icrl.envs.core import MapView, TensorEnv
from icrl.envs.rollout import exact_rewards, is_success, returns_so_far
from icrl.extensions.films.growing_curve import GrowingCurve
from icrl.extensions.maps.render import REWARDED, WALL, Frames, caption, pictures_of, render_cells
from icrl.plots.style import Frame

HOLD = 4  # frames for which the end of an episode stays: half a second of a life
CELL, SMALLEST_CELL = 24, 4  # pixels of a cell, if the picture has room for them, and if it has not
SIDE = 216  # pixels of the side of a small room, whose curve needs room for its labels
CLIP, PICTURE = 480, 1280  # largest pixels of the longer side of a clip, and of all clips together, if cells allow
WALL_PIXELS = 6  # around pictures of the world's own
MARGIN = 4  # pixels between tiled clips; even, so that even clips give an even picture
BACKGROUND = (18, 20, 24)  # of tiled clips
AT_ONCE = 16  # frames in memory
WATCHED, SKIMMED = 150, 40  # frames of the first episodes of a life, and of those after them: a frame an episode


class Walk(NamedTuple):
    """One episode of one stream: its cells from first to last, and where it was rewarded, `[length + 1]` each."""

    cells: NDArray[np.int64]
    rewarded: NDArray[np.bool_]
    pictures: Callable[[], list[Frame]] = list  # drawn by the world itself, `[length + 1]`; empty: drawn as a map
    told: str = ""  # words for the episode, shown above such pictures
    total: float = 0.0  # return


def walks_of(env: TensorEnv, transitions: Rollout, stream: int, task: Tensor, seed: int) -> list[Walk]:
    """Finished episodes of one stream of `[T, B]` transitions, in order; the transitions start with a reset. The stream
    is one of `task` `[task_dim]` with `seed`."""
    transitions = transitions.each(lambda column: column[:, stream].cpu())
    before = env.cell(transitions.obs, transitions.action).numpy()
    after = env.cell(transitions.next_obs, transitions.action).numpy()
    value = exact_rewards(env.spec, transitions.reward.numpy())
    done = (transitions.terminated | transitions.truncated).bool()
    rewarded, ends = value > 0, np.flatnonzero(done) + 1
    if max(env.spec.reward_values or value.tolist()) <= 0:  # where nothing pays, successes stand out instead
        best = (transitions.action == transitions.optimal_action).view(len(value), -1).all(1)
        so_far = returns_so_far(value[:, None], done.numpy()[:, None], np.zeros(1))
        ended = transitions.terminated.bool().numpy()
        rewarded = is_success(env.spec, value, ended, done.numpy(), best.numpy(), np.concatenate(so_far))
    walks = []
    for episode, (i, j) in enumerate(pairwise([0, *ends])):
        seen = torch.cat([transitions.obs[i : i + 1], transitions.next_obs[i:j]])
        pictures = partial(_pictures, env, task.cpu(), seed, episode, seen, transitions.action[i:j])
        total = float(value[i:j].sum())
        told = f"episode {episode + 1}, return {total:g}"
        walks.append(Walk(np.append(before[i], after[i:j]), np.append(False, rewarded[i:j]), pictures, told, total))
    return walks


def _pictures(env: TensorEnv, task: Tensor, seed: int, episode: int, seen: Tensor, actions: Tensor) -> list[Frame]:
    """`pictures_of` the world, none larger than `CLIP`; empty if the world cannot draw them, which is reported."""
    try:
        drawn = [Image.fromarray(np.asarray(one)) for one in pictures_of(env, task, seed, episode, seen, actions)]
    except PipelineError as error:
        report(f"videos show observations as a grid, because the world cannot be drawn (docs/worlds.md). {error}")
        return []
    for picture in drawn:
        picture.thumbnail((CLIP, CLIP), Image.Resampling.BOX)
    return [np.asarray(picture) for picture in drawn]


@cache
def report(message: str) -> None:
    """Print a line once."""
    tqdm.write(message)


class Film(NamedTuple):
    """Walks one after the other, each with its own trail and its end held: T frames of S cells."""

    view: MapView
    cells: NDArray[np.int64]  # [T], the agent's cell
    rewarded: NDArray[np.bool_]  # [T]
    visited: NDArray[np.bool_]  # [T, S]
    titles: Sequence[str]  # [T] captions; empty ones are left out
    pictures: Sequence[bytes] = ()  # [T], compressed, of `shape`; empty: cells are drawn
    shape: tuple[int, ...] = ()
    curve: GrowingCurve | None = None  # below the frames
    counts: Sequence[int] = ()  # [T], of the episodes that it shows

    def last_frame(self) -> Film:
        """The film of this one's last frame alone."""
        columns = {"cells": self.cells[-1:], "rewarded": self.rewarded[-1:], "visited": self.visited[-1:]}
        return self._replace(**columns, titles=self.titles[-1:], pictures=self.pictures[-1:])

    def draw(self, times: NDArray[np.int64], room: int) -> Frames:
        """Frames at `times`, of at most `room` pixels if cells allow; the last one stays."""
        at = np.minimum(times, len(self.cells) - 1)
        if self.pictures:
            pictures = [np.frombuffer(zlib.decompress(self.pictures[i]), np.uint8).reshape(self.shape) for i in at]
            frames = frame_pictures(pictures, self.rewarded[at], room)
        else:
            side = max(self.view.rows, self.view.columns)
            cell_pixels = max(SMALLEST_CELL, min(max(CELL, SIDE // side), room // side))
            frames = render_cells(self.cells[at], self.view, cell_pixels, self.rewarded[at], self.visited[at])
        if self.curve:
            counts = [self.counts[i] for i in at]
            panels = {count: self.curve.draw(count, frames.shape[2]) for count in {*counts}}
            frames = np.concatenate([frames, np.stack([panels[count] for count in counts])], axis=1)
        titles = [self.titles[i] for i in at]
        if not any(titles):
            return frames
        parts = [[*part] for _, part in groupby(range(len(at)), key=titles.__getitem__)]
        return np.concatenate([caption(frames[part], titles[part[0]]) for part in parts])


def film(walks: Sequence[Walk], view: MapView, title: str = "") -> Film:
    """Film of `walks` with an optional caption; pictures of the world's own are told what they show."""
    cells, rewarded = ([np.pad(getattr(walk, name), (0, HOLD), "edge") for walk in walks] for name in Walk._fields[:2])
    everywhere = np.arange(view.rows * view.columns)
    trails = [np.logical_or.accumulate(walk[:, None] == everywhere, axis=0) for walk in cells]
    drawn = [walk.pictures() for walk in walks]
    titles, pictures, shape = [title] * sum(map(len, cells)), list[bytes](), ()
    if all(drawn):
        shape = drawn[0][0].shape
        for frames in drawn:
            pictures += [zlib.compress(frame.tobytes(), 1) for frame in (*frames, *frames[-1:] * HOLD)]
        named = [f"{title.partition(',')[0]}, {walk.told}".removeprefix(", ") for walk in walks]
        titles = [name for name, walk in zip(named, cells, strict=True) for _ in walk]
    return Film(view, np.concatenate(cells), np.concatenate(rewarded), np.concatenate(trails), titles, pictures, shape)


def play(films: Sequence[Film], num_columns: int | None = None) -> Iterator[Frame]:
    """Frames of films with views of one size side by side (see `tile`), until the longest ends. They are drawn a few at
    a time, as large as `CELL`, `CLIP` and `PICTURE` allow."""
    num_columns = num_columns or isqrt(len(films) - 1) + 1
    num_frames = max(len(shown.cells) for shown in films)
    for start in range(0, num_frames, AT_ONCE):
        times = np.arange(start, min(start + AT_ONCE, num_frames))
        clips = [shown.draw(times, min(CLIP, PICTURE // num_columns)) for shown in films]
        yield from clips[0] if len(clips) == 1 else tile(clips, num_columns)


def film_of_life(walks: Sequence[Walk], view: MapView, name: str, curve: GrowingCurve) -> Film:
    """Film of a life above its growing `curve`: the first episodes, then a frame of the end of each further one that
    the curve has room for, then the last episode. Of worlds that draw themselves, which takes long, only the first
    episodes and the last one are shown."""
    last, num_frames = len(walks) - 1, np.cumsum([len(walk.cells) + HOLD for walk in walks])
    num_watched = max(1, int(np.searchsorted(num_frames, WATCHED, "right")))
    films, counts = list[Film](), list[int]()
    later = range(num_watched, min(len(curve.returns), last))
    for number in [*range(min(num_watched, last)), *later[:: -(-len(later) // SKIMMED) or 1], last]:
        if films and films[0].pictures and number in later:
            continue
        made = film([walks[number]], view, f"{name}, episode {number + 1}")
        if number in later:
            made, ends = made.last_frame(), [number + 1]
        else:
            ends = [number] * (len(walks[number].cells) - 1) + [number + 1] * (1 + HOLD)
        films, counts = [*films, made], counts + ends
    cells, rewarded, visited = (np.concatenate([getattr(made, part) for made in films]) for part in Film._fields[1:4])
    titles, pictures = ([one for made in films for one in getattr(made, part)] for part in ("titles", "pictures"))
    pictures = pictures if all(made.pictures for made in films) else []
    return Film(view, cells, rewarded, visited, titles, pictures, films[0].shape, curve, counts)


def frame_pictures(pictures: Sequence[NDArray[np.uint8]], rewarded: NDArray[np.bool_], room: int) -> Frames:
    """Pictures of one size in a wall as around `render_cells`, made smaller until they have at most `room` pixels, or
    larger by a whole number until they are about as large as a small room."""
    height, width = pictures[0].shape[:2]
    longer = max(height, width)
    scale = min(float(max(1, round(SIDE / longer))), (room - 2 * WALL_PIXELS) / longer)
    size = (2 * max(1, round(width * scale / 2)), 2 * max(1, round(height * scale / 2)))
    frames = np.empty((len(pictures), size[1] + 2 * WALL_PIXELS, size[0] + 2 * WALL_PIXELS, 3), dtype=np.uint8)
    frames[:] = WALL
    frames[rewarded] = REWARDED
    for frame, picture in zip(frames, pictures, strict=True):
        smaller = Image.fromarray(picture).resize(size, Image.Resampling.BOX)
        frame[WALL_PIXELS:-WALL_PIXELS, WALL_PIXELS:-WALL_PIXELS] = np.asarray(smaller)
    return frames


def tile(clips: Sequence[Frames], num_columns: int) -> Frames:
    """Clips of one size side by side, row by row, `[T, H', W', 3]`, until the longest ends; shorter ones hold their
    last frame."""
    height, width = clips[0].shape[1:3]
    num_rows, num_frames = -(-len(clips) // num_columns), max(len(clip) for clip in clips)
    shape = (num_frames, num_rows * (height + MARGIN) + MARGIN, num_columns * (width + MARGIN) + MARGIN, 3)
    grid = np.empty(shape, dtype=np.uint8)
    grid[:] = BACKGROUND
    for index, clip in enumerate(clips):
        top = MARGIN + index // num_columns * (height + MARGIN)
        left = MARGIN + index % num_columns * (width + MARGIN)
        tiled = grid[:, top : top + height, left : left + width]
        tiled[: len(clip)] = clip
        tiled[len(clip) :] = clip[-1]
    return grid
