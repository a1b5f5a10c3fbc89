"""Films of episodes: single walks, several side by side, and the lives of the model and of a source agent."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import cache, partial
from itertools import chain, groupby, pairwise
from math import isqrt
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from tqdm import tqdm

from icrl.collection.async_unroll import make_unroll_worker, thread_pool
from icrl.collection.collect import collect, make_learners
from icrl.collection.experience import make_experience, without_others
from icrl.config.options import replace
from icrl.contracts import PipelineError, Rollout
from icrl.envs.core import MapView, TensorEnv
from icrl.envs.exact import optimal_exact
from icrl.envs.render import caption, frame_pictures, render_cells
from icrl.envs.rollout import is_success, returns_so_far, reward_values
from icrl.evaluation.in_context import seeds_of_play
from icrl.evaluation.report import source_label
from icrl.plots.growing_curve import GrowingCurve
from icrl.plots.style import Frame, Frames, tile, write_video

if TYPE_CHECKING:
    from icrl.app.root import Config

HOLD = 4  # frames for which the end of an episode stays: half a second of a life
CELL, SMALLEST_CELL = 24, 4  # pixels of a cell, if the picture has room for them, and if it has not
CLIP, PICTURE = 480, 1280  # largest pixels of the longer side of a clip, and of all clips together, if cells allow
AT_ONCE = 16  # frames in memory
WATCHED, SKIMMED = 150, 40  # frames of the first episodes of a life, and of those after them: a frame an episode
NUM_COMPARED = 3  # tasks
FRAMES_PER_SECOND = 8


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
    value = reward_values(env.spec, transitions.reward.numpy())
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
        pictures = partial(_pictures, env, task, seed, episode, seen, transitions.action[i:j])
        total = float(value[i:j].sum())
        told = f"episode {episode + 1}, return {total:g}"
        walks.append(Walk(np.append(before[i], after[i:j]), np.append(False, rewarded[i:j]), pictures, told, total))
    return walks


def _pictures(env: TensorEnv, task: Tensor, seed: int, episode: int, seen: Tensor, actions: Tensor) -> list[Frame]:
    """`env.pictures`, none larger than `CLIP`; empty if the world cannot draw them, which is reported."""
    try:
        drawn = [Image.fromarray(np.asarray(one)) for one in env.pictures(task, seed, episode, seen, actions)]
    except PipelineError as error:
        _report(f"videos show observations as a grid, because the world cannot be drawn (docs/worlds.md). {error}")
        return []
    for picture in drawn:
        picture.thumbnail((CLIP, CLIP), Image.Resampling.BOX)
    return [np.asarray(picture) for picture in drawn]


def tell_not_filmed(config: Config, env: TensorEnv) -> None:
    """Print once why there are no videos, if they are asked and the world cannot be shown."""
    if (config.source.videos_per_task or config.evaluation.videos) and env.not_filmed:
        _report(f"no videos, because the world has no pictures (docs/worlds.md): {env.not_filmed}")


@cache
def _report(message: str) -> None:
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
            cell_pixels = max(SMALLEST_CELL, min(CELL, room // max(self.view.rows, self.view.columns)))
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
    in_a_row = num_columns or isqrt(len(films) - 1) + 1
    num_frames = max(len(shown.cells) for shown in films)
    for start in range(0, num_frames, AT_ONCE):
        times = np.arange(start, min(start + AT_ONCE, num_frames))
        clips = [shown.draw(times, min(CLIP, PICTURE // in_a_row)) for shown in films]
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


def compared_tasks(env: TensorEnv, tasks: Tensor) -> list[int]:
    """Numbers of the tasks among `tasks` `[G, task_dim]` that are filmed, from the quickest to the longest to solve."""
    length = optimal_exact(env, tasks).steps_to_goal if env.is_exact else torch.arange(len(tasks))
    by_length = length.argsort(stable=True).tolist()
    return [*dict.fromkeys(by_length[i * (len(tasks) - 1) // (NUM_COMPARED - 1)] for i in range(NUM_COMPARED))]


def write_lives(
    config: Config,
    folder: Path,
    env: TensorEnv,
    tasks: Tensor,
    played: Mapping[str, Rollout],
    references: Mapping[str, Sequence[float]],
    device: torch.device,
) -> None:
    """Write videos of lives of models beside a source agent into `folder`, for a few of `tasks` `[G, task_dim]`, from
    the quickest to the longest to solve; `played` holds `[T, G * S]` transitions of each model by name, `references`
    the returns `[G]` of others by name.

    Below each room grows the curve of returns over as many episodes as the model has; of the source agent the last
    episode of its life follows. That agent, of `config.source`, is trained here on the task alone. If it cannot do
    without others, the model is shown alone. A world that cannot be shown has no videos."""
    if env.not_filmed:
        return
    num_episodes, alone = config.evaluation.num_episodes, without_others(config)
    num_streams = next(iter(played.values())).obs.shape[1] // len(tasks)
    for index in compared_tasks(env, tasks):
        task, stream = tasks[index], index * num_streams
        seed = int(seeds_of_play(config.seed, stream + 1)[stream])
        lives = {name: walks_of(env, own, stream, task, seed)[:num_episodes] for name, own in played.items()}
        if alone:
            life, seed = _source_life(alone, env, tasks[index : index + 1], device)
            lives[source_label(config.source.name)] = walks_of(env, life, 0, task, seed)
        lines = {name: float(values[index]) for name, values in references.items()}
        returns = {name: [walk.total for walk in walks[:num_episodes]] for name, walks in lives.items()}
        seen = [*lines.values(), *chain(*returns.values())]
        curves = {name: GrowingCurve(own, lines, (min(seen), max(seen))) for name, own in returns.items()}
        films = [film_of_life(walks, env.map_view(task), name, curves[name]) for name, walks in lives.items()]
        write_video(folder / f"{env.label(task)}.mp4", play(films, len(films)), FRAMES_PER_SECOND)


def _source_life(config: Config, env: TensorEnv, task: Tensor, device: torch.device) -> tuple[Rollout, int]:
    """Whole life of a source agent of `task` `[1, task_dim]` in its first environment, `[T, 1]`, and its seed."""
    config = replace(config, source=replace(config.source, num_learners=1))  # it lives as among others
    learner, streams, noise = make_learners(config, env, task, device)
    seed = int(streams.state.seed[0])
    with closing(make_unroll_worker(config, env, learner, streams, noise, 0, thread_pool)) as worker:
        loop = collect(learner, worker, make_experience(config, env.spec, task, device))
        life = [transitions.each(lambda column: column[:, :1]) for transitions, _, _ in loop]
    return Rollout.joined(life), seed
