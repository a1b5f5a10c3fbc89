"""Videos of source agents after stage one, and of lives of the models of an evaluation beside a source agent.

G tasks, S streams of each, K agents of each.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from icrl.app.root import Config
from icrl.config.options import replace
from icrl.contracts import Rollout
from icrl.envs.core import TensorEnv
from icrl.evaluation.diagnostics import Episodes
from icrl.evaluation.in_context import seeds_of_play
from icrl.evaluation.measures import Exact
from icrl.evaluation.protocol import BEFORE
from icrl.evaluation.references import exact_references
from icrl.evaluation.report import source_label
from icrl.evaluation.setup import Played, Setup
from icrl.extensions.films.growing_curve import GrowingCurve
from icrl.extensions.films.video import write_video
from icrl.extensions.films.walks import Film, film, film_of_life, play, report, walks_of
from icrl.extensions.maps.render import not_filmed
from icrl.runs.processes import progress_bar
from icrl.sources import source_of
from icrl.sources.collect import collect, make_experience, make_learners, make_unroll_worker

NUM_COMPARED = 3  # tasks
WALKS_PER_VIDEO, MOST_VIDEOS = 3, 16  # of source agents
SOURCE_FRAMES_PER_SECOND, FRAMES_PER_SECOND = 6, 8


def tell(config: Config, env: TensorEnv) -> None:
    if (config.source.videos_per_task or config.evaluation.videos) and not_filmed(env):
        report(f"no videos, because the world has no pictures (docs/worlds.md): {not_filmed(env)}")


def film_agents(config: Config, env: TensorEnv, tasks: Tensor, played: Rollout) -> None:
    """Write a video of some agents' first walks, and one of all of them side by side. Every task has a video before
    one has two."""
    if not config.source.videos_per_task or not_filmed(env):
        return
    source, folder = config.source, config.folder("videos") / "source"
    agents = [(task, k) for k in range(source.videos_per_task) for task in range(len(tasks))]
    seeds, films = seeds_of_play(config.seed, played.obs.shape[1]), dict[str, Film]()
    for task, k in sorted(agents[:MOST_VIDEOS]):
        stream = (task * source.num_learners + k) * source.num_envs
        walks = walks_of(env, played, stream, tasks[task], int(seeds[stream]))[:WALKS_PER_VIDEO]
        films[f"{env.label(tasks[task])}_agent_{k}.mp4"] = film(walks, env.map_view(tasks[task]))

    def write(name: str) -> None:
        write_video(folder / name, play([films[name]]), SOURCE_FRAMES_PER_SECOND)

    with ThreadPoolExecutor(os.cpu_count()) as encoders:  # each writes through an ffmpeg process of its own
        list(progress_bar(encoders.map(write, films), total=len(films), desc="videos", unit="video"))
    write_video(folder / "all_agents.mp4", play([*films.values()]), SOURCE_FRAMES_PER_SECOND)


def lives(setup: Setup, played: Played, references: Exact) -> Callable[[], None]:
    config, env, tasks, store = setup.config, setup.env, setup.tasks[setup.main], setup.store
    if store:
        config = replace(config, source=source_of(store.manifest["config"], store.folder))
    beside = returns_beside(env, played.episodes, references)
    return partial(write_lives, config, _folder(setup), env, tasks, played.filmed, beside, tasks.device)


def returns_beside(env: TensorEnv, episodes: Episodes, references: Exact) -> dict[str, Sequence[float]]:
    """Mean return on each task of random play and of the best one, as far as they are known or were played."""
    if references:
        return {name: numbers["returns"] for name, numbers in references.items()}
    return {
        name: episodes[name].returns.mean((1, 2)).tolist() for name in ("random", env.best_name) if name in episodes
    }


def guide(setup: Setup) -> list[str]:
    env, tasks = setup.env, setup.tasks[setup.main]
    longest = _folder(setup) / f"{env.label(tasks[compared_tasks(env, tasks)[-1]])}.mp4"
    if not longest.exists():
        return []
    which = "the task that takes longest" if exact_references(env, tasks) else "one task"
    middle = [f"              In the middle the {BEFORE}."] if setup.start else []
    return [
        f"start with    {longest}",
        f"              Lives on {which}; below them, the return of each episode. On the left",
        "              the model, which should search first and go straight later.",
        *middle,
        "              On the right the source agent of that task, if there is one, which learns by its own",
        "              algorithm. Green walls mean a reward or a success.",
    ]


def _folder(setup: Setup) -> Path:
    """Folder of the videos of an evaluation."""
    return setup.config.folder("videos") / f"in_context{setup.suffix}"


def compared_tasks(env: TensorEnv, tasks: Tensor) -> list[int]:
    """Numbers of the tasks among `tasks` `[G, task_dim]` that are filmed, from the quickest to the longest to solve."""
    exact = exact_references(env, tasks)
    length = exact["optimum"]["steps_to_goal"] if exact else range(len(tasks))
    by_length = np.argsort(length, kind="stable").tolist()
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
    if not_filmed(env):
        return
    num_episodes, changes = config.evaluation.num_episodes, config.source.alone()
    num_streams = next(iter(played.values())).obs.shape[1] // len(tasks)
    for index in compared_tasks(env, tasks):
        task, stream = tasks[index], index * num_streams
        seed = int(seeds_of_play(config.seed, stream + 1)[stream])
        lives = {name: walks_of(env, own, stream, task, seed)[:num_episodes] for name, own in played.items()}
        if changes is not None:
            # The one learner lives as it did among others.
            alone = replace(config, source=replace(config.source, num_learners=1, **changes))
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
    learner, streams, noise = make_learners(config, env, task, device)
    seed = int(streams.state.seed[0])
    with closing(make_unroll_worker(config, env, learner, streams, noise, 0, in_thread=True)) as worker:
        loop = collect(learner, worker, make_experience(config, env.spec, task, device))
        life = [transitions.each(lambda column: column[:, :1]) for transitions, _, _ in loop]
    return Rollout.joined(life), seed
