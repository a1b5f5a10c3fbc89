"""Films of episodes: single walks, several side by side, and the model beside a source agent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import pairwise
from math import isqrt
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from icrl.collection.async_unroll import make_unroll_worker, thread_pool
from icrl.collection.collect import collect, make_learners
from icrl.collection.experience import Experience, without_others
from icrl.config.options import replace
from icrl.contracts import Rollout
from icrl.envs.core import MapView, TensorEnv
from icrl.envs.exact import optimal_exact
from icrl.envs.render import caption, render_cells
from icrl.evaluation.report import source_label
from icrl.plots.style import Frame, Frames, tile, write_video
from icrl.sources.noise_distillation import NoiseDistillationConfig

if TYPE_CHECKING:
    from icrl.config.root import Config

HOLD = 4  # frames for which the end of an episode stays
CELL, SMALLEST_CELL = 24, 4  # pixels of a cell, if the picture has room for them, and if it has not
CLIP, PICTURE = 480, 1280  # largest pixels of the longer side of a clip, and of all clips together, if cells allow
AT_ONCE = 16  # frames in memory
SHOWN = (1, 5, 20)  # episodes of a comparison, beside the last
NUM_COMPARED = 3  # tasks
FRAMES_PER_SECOND = 4


class Walk(NamedTuple):
    """One episode of one stream: its cells from first to last, and where it was rewarded, `[length + 1]` each."""

    cells: NDArray[np.int64]
    rewarded: NDArray[np.bool_]


def walks_of(env: TensorEnv, transitions: Rollout, stream: int) -> list[Walk]:
    """Finished episodes of one stream of `[T, B]` transitions, in order; the transitions start with a reset."""
    transitions = Rollout(*(column[:, stream].cpu() for column in transitions))
    before = env.cell(transitions.obs, transitions.action).numpy()
    after = env.cell(transitions.next_obs, transitions.action).numpy()
    rewarded = np.array(env.spec.reward_values)[transitions.reward.numpy()] > 0
    ends = np.flatnonzero(transitions.terminated | transitions.truncated) + 1
    spans = pairwise([0, *ends])
    return [Walk(np.append(before[i], after[i:j]), np.append(False, rewarded[i:j])) for i, j in spans]


class Film(NamedTuple):
    """Walks one after the other, each with its own trail and its end held: T frames of S cells."""

    view: MapView
    cells: NDArray[np.int64]  # [T], the agent's cell
    rewarded: NDArray[np.bool_]  # [T]
    visited: NDArray[np.bool_]  # [T, S]
    title: str

    def draw(self, times: NDArray[np.int64], cell_pixels: int) -> Frames:
        """Frames at `times`; the last one stays."""
        at = np.minimum(times, len(self.cells) - 1)
        frames = render_cells(self.cells[at], self.view, cell_pixels, self.rewarded[at], self.visited[at])
        return caption(frames, self.title) if self.title else frames


def film(walks: Sequence[Walk], view: MapView, title: str = "") -> Film:
    """Film of `walks` with an optional caption."""
    cells, rewarded = ([np.pad(each, (0, HOLD), "edge") for each in column] for column in zip(*walks, strict=True))
    everywhere = np.arange(view.rows * view.columns)
    trails = [np.logical_or.accumulate(walk[:, None] == everywhere, axis=0) for walk in cells]
    return Film(view, np.concatenate(cells), np.concatenate(rewarded), np.concatenate(trails), title)


def play(films: Sequence[Film], num_columns: int | None = None) -> Iterator[Frame]:
    """Frames of films with views of one size side by side (see `tile`), until the longest ends. They are drawn a few at
    a time, with cells as large as `CELL`, `CLIP` and `PICTURE` allow."""
    view, in_a_row = films[0].view, num_columns or isqrt(len(films) - 1) + 1
    room = min(CLIP, PICTURE // in_a_row) // max(view.rows, view.columns)
    cell_pixels = max(SMALLEST_CELL, min(CELL, room))
    num_frames = max(len(shown.cells) for shown in films)
    for start in range(0, num_frames, AT_ONCE):
        times = np.arange(start, min(start + AT_ONCE, num_frames))
        clips = [shown.draw(times, cell_pixels) for shown in films]
        yield from clips[0] if len(clips) == 1 else tile(clips, num_columns)


def side_by_side(rows: Sequence[tuple[str, Sequence[tuple[str, Walk]]]], view: MapView) -> Iterator[Frame]:
    """Frames of a grid of walks that play together: rows of equal length with a name, of walks with a label."""
    films = [film([walk], view, f"{name}, {label}") for name, walks in rows for label, walk in walks]
    return play(films, num_columns=len(rows[0][1]))


def write_comparisons(
    config: Config, folder: Path, env: TensorEnv, tasks: Tensor, played: Rollout, device: torch.device
) -> None:
    """Write videos of the model above a source agent into `folder`, for a few of `tasks` `[G, task_dim]`, from the
    quickest to the longest to solve; `played` holds `[T, G * S]` transitions of the model.

    Shown are episodes 1, 5, 20 and the last. The agent of `config.source` is trained here on that task alone. With a
    teacher that knows training tasks only, there is no such agent, and the model is shown alone."""
    num_streams, num_episodes, source = played.obs.shape[1] // len(tasks), config.evaluation.num_episodes, config.source
    length = optimal_exact(env, tasks).steps_to_goal if env.has_planner else torch.arange(len(tasks))
    by_length = length.argsort(stable=True).tolist()
    chosen = [by_length[i * (len(tasks) - 1) // (NUM_COMPARED - 1)] for i in range(NUM_COMPARED)]
    for index in dict.fromkeys(chosen):
        lives = {"model": walks_of(env, played, index * num_streams)[:num_episodes]}
        if not isinstance(source, NoiseDistillationConfig) or source.teacher == "none":
            life = _source_life(config, env, tasks[index : index + 1], device)
            lives[source_label(source.name)] = walks_of(env, life, 0)
        rows = []
        for name, walks in lives.items():
            numbers = [*(number for number in SHOWN if number < num_episodes), len(walks)]
            rows.append((name, [(f"episode {number}", walks[number - 1]) for number in numbers]))
        frames = side_by_side(rows, env.map_view(tasks[index]))
        write_video(folder / f"{env.label(tasks[index])}.mp4", frames, FRAMES_PER_SECOND)


def _source_life(config: Config, env: TensorEnv, task: Tensor, device: torch.device) -> Rollout:
    """Whole life of a source agent of `task` `[1, task_dim]` in its first environment, `[T, 1]`."""
    config = without_others(config)  # the others have histories of training tasks alone
    # A learner lives as among others, and its streams do so in tensors.
    config = replace(config, source=replace(config.source, num_learners=1, vectorization="tensor"))
    learner, streams, noise = make_learners(config, env, task, device)
    with closing(make_unroll_worker(config, env, learner, streams, noise, 0, thread_pool)) as worker:
        loop = collect(learner, worker, Experience(config, env.spec, task, device))
        life = [Rollout(*(column[:, :1] for column in transitions)) for transitions, _, _ in loop]
    return Rollout(*(torch.cat(column) for column in zip(*life, strict=True)))
