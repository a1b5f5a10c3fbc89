"""Videos of the same held-out task: the model that learns in context beside a source agent on its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from icrl.collection.collect import LocalUnrollWorker, collect, make_learners
from icrl.collection.experience import Experience, without_others
from icrl.config.training_schema import NoiseDistillationConfig
from icrl.contracts import Rollout
from icrl.envs.core import TensorEnv
from icrl.envs.exact import optimal_exact
from icrl.evaluation.report import source_label
from icrl.plots.video import write_video
from icrl.plots.walks import Walk, side_by_side, walks_of

if TYPE_CHECKING:
    from icrl.config.root import Config

SHOWN = (1, 5, 20)  # and the last
NUM_SHOWN = 3
FRAMES_PER_SECOND = 4


def write_comparisons(
    config: Config, folder: Path, env: TensorEnv, tasks: Tensor, played: Rollout, device: torch.device
) -> None:
    """Write a video into `folder` for each of a few of `tasks` `[G, task_dim]`, from the quickest to the longest to
    solve, of which `played` holds `[T, G * S]` transitions of the model: its episodes 1, 5, 20 and the last above the
    same of an agent of `config.source`, which lives on that task alone, here and for the video only. Where the sources
    were taught by agents of the training tasks, nobody can teach one on a held-out task, and the model is shown alone.
    """
    num_streams = played.obs.shape[1] // len(tasks)
    length = optimal_exact(env, tasks).steps_to_goal if env.has_planner else torch.arange(len(tasks))
    by_length = length.argsort(stable=True).tolist()
    chosen = [by_length[i * (len(tasks) - 1) // (NUM_SHOWN - 1)] for i in range(NUM_SHOWN)]
    numbers = [number for number in SHOWN if number < config.evaluation.num_episodes]
    for index in dict.fromkeys(chosen):
        ours = walks_of(env, played, index * num_streams)[: config.evaluation.num_episodes]
        rows = [("model", _labelled(ours, numbers))]
        if not isinstance(config.source, NoiseDistillationConfig) or config.source.teacher == "none":
            source = walks_of(env, _source_life(config, env, tasks[index : index + 1], device), 0)
            rows.append((source_label(config.source.name), _labelled(source, numbers)))
        frames = side_by_side(rows, env.map_view(tasks[index]))
        write_video(folder / f"{env.label(tasks[index])}.mp4", frames, FRAMES_PER_SECOND)


def _labelled(walks: list[Walk], numbers: list[int]) -> list[tuple[str, Walk]]:
    return [(f"episode {number}", walks[number - 1]) for number in [*numbers, len(walks)]]


def _source_life(config: Config, env: TensorEnv, task: Tensor, device: torch.device) -> Rollout:
    """The first environment of a source agent of `task` `[1, task_dim]`, its whole life, `[T, 1]`."""
    config = without_others(config)  # who have histories of training tasks alone
    learner, streams, noise = make_learners(config, env, task, device)
    player = LocalUnrollWorker(config.source, env, learner, streams, noise)
    loop = collect(learner, player, Experience(config, env.spec, task, device))
    life = [Rollout(*(column[:, :1] for column in transitions)) for transitions, _, _ in loop]
    return Rollout(*(torch.cat(column) for column in zip(*life, strict=True)))
