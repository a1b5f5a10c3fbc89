"""Curves of the source agents during stage one, and their success, pictures and videos after it."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from icrl.collection.collect import Learner
from icrl.collection.source_run import EpisodeStatistics
from icrl.contracts import EnvSpec, Rollout, Step
from icrl.envs.core import TensorEnv
from icrl.evaluation.in_context import play_episodes
from icrl.plots.style import figure_to_array, save_figure
from icrl.plots.task_maps import success_figure
from icrl.plots.video import write_video
from icrl.plots.walks import film, play, walks_of
from icrl.runs.metrics import MetricLogger, Progress, spread
from icrl.sources.pace import env_steps, num_iterations, unrolled
from icrl.training.inspection import inspect

if TYPE_CHECKING:
    from icrl.config.root import Config

SOLVED = 0.9  # success over its last episodes from which on an agent counts as having solved its task
NUM_EPISODES = 10  # of each stream of a trained agent
WALKS_PER_VIDEO = 3
FRAMES_PER_SECOND = 6


class SourceCurves:
    """Curves of stage one over env steps per learner: mean and band over all learners, the fraction that solved its
    task, and each learner's own on request."""

    def __init__(self, config: Config, spec: EnvSpec, num_tasks: int, first: int) -> None:
        """For a run that resumes from iteration `first`."""
        self._source, self._options = source, options = config.source, config.summaries
        folder, num_learners = config.folder("logs") / "source", num_tasks * source.num_learners
        done = unrolled(source, first) * source.num_envs  # env steps of one learner
        progress = Progress("train_agents", env_steps(source) * num_learners, done * num_learners, "step")
        self._logger = MetricLogger(folder, done, options, num_iterations(source), progress, first)
        self._logger.bands("source agents", ["source/return", "source/success", "source/episode_length"])
        self._own = [
            MetricLogger(folder / "agents" / f"{k:04d}", done, options)
            for k in range(num_learners * source.per_agent_curves)
        ]
        self.loggers = [self._logger, *self._own]
        self.statistics = EpisodeStatistics(spec, num_learners, source.num_envs)

    def add(self, iteration: int, transitions: Rollout, metrics: dict[str, Tensor], learner: Learner) -> None:
        """Take in one iteration: its transitions `[T, B]`, metrics `[L]` and the learners after it."""
        self.statistics.add(transitions)
        self._logger.advance(transitions.reward.numel())
        if not self._logger.due(iteration):
            return
        summary = self.statistics.summary()
        steps = unrolled(self._source, iteration) * self._source.num_envs
        for name, values in summary.items():
            self._logger.scalars(f"source/{name}", spread(values), steps)
            for logger, value in zip(self._own, values, strict=False):
                if not np.isnan(value):
                    logger.scalars("source", {name: float(value)}, steps)
        solved = {"fraction_solved": float((summary["success"] >= SOLVED).mean())}
        self._logger.scalars("source", solved, steps)
        self._logger.scalars("update", {name: value.mean().item() for name, value in metrics.items()}, steps)
        policy = lambda: (learner.action_probabilities(_last_step(transitions)), learner.outputs())  # noqa: E731
        data = {name: getattr(transitions, name) for name in ("obs", "action", "reward", "timestep")}
        inspect(self._logger, self._options, steps, learner.parameters(), policy, data, "source_")
        if self._logger.line_due(iteration):
            mean = spread(summary["return"]).get("mean")
            self._logger.line(({} if mean is None else {"return": mean}) | solved)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for logger in self.loggers:
            logger.close()


def examine(config: Config, env: TensorEnv, learner: Learner, tasks: Tensor, held_out: list[int]) -> dict[str, Any]:
    """Success of the trained agents of `tasks` `[G, task_dim]` on fresh episodes, with a picture of it on TensorBoard
    and videos of agents. Agents that learn in context first play as many episodes as an evaluation has."""
    source, num_tasks = config.source, len(tasks)
    num_episodes = max(NUM_EPISODES, config.evaluation.num_episodes) if source.name == "searcher" else NUM_EPISODES
    num_streams = source.num_learners * source.num_envs
    adaptation, played = play_episodes(learner, env, tasks, num_streams, num_episodes, config.seed)
    success = adaptation.success[..., -NUM_EPISODES:].reshape(num_tasks, source.num_learners, -1).mean(-1)
    figure = success_figure(
        env,
        (tasks, success.mean(1).tolist()),
        (env.all_tasks()[held_out], []),
        (tasks[:0], []),
        title="Success of the trained agents on each task",
    )
    folder = config.folder("logs") / "source"
    save_figure(folder / "goals.png", figure)
    with MetricLogger(folder) as logger:
        logger.image("goals", figure_to_array(figure), env_steps(source))
    if source.videos_per_task:
        _write_videos(config, env, tasks, played)
    unsolved = [
        {"task": env.label(task), "success": values.round(3).tolist()}
        for task, values in zip(tasks, success, strict=True)
        if values.min() < SOLVED
    ]
    return {"num_tasks": num_tasks, "success": success.tolist(), "unsolved": unsolved}


def _write_videos(config: Config, env: TensorEnv, tasks: Tensor, played: Rollout) -> None:
    """Write a video of some agents' first walks, `played` `[T, B]`, and one of all of them side by side. Every task has
    a video before one has two."""
    source = config.source
    folder = config.folder("videos") / "source"
    agents = [(task, k) for k in range(source.videos_per_task) for task in range(len(tasks))]
    agents = sorted(agents[: source.max_videos])
    films = [
        film(
            walks_of(env, played, (task * source.num_learners + k) * source.num_envs)[:WALKS_PER_VIDEO],
            env.map_view(tasks[task]),
        )
        for task, k in agents
    ]

    def write(index: int) -> None:
        task, k = agents[index]
        write_video(folder / f"{env.label(tasks[task])}_agent_{k}.mp4", play([films[index]]), FRAMES_PER_SECOND)

    with ThreadPoolExecutor(os.cpu_count()) as encoders:  # each writes through an ffmpeg process of its own
        list(tqdm(encoders.map(write, range(len(agents))), total=len(agents), desc="videos", unit="video"))
    write_video(folder / "all_agents.mp4", play(films), FRAMES_PER_SECOND)


def _last_step(transitions: Rollout) -> Step:
    """Step of the streams before their last action."""
    obs, ended = transitions.obs[-1], torch.zeros_like(transitions.terminated[-1])
    nothing = torch.zeros_like(transitions.action[-1])
    return Step(obs, nothing, ended, ended, obs, transitions.timestep[-1], transitions.optimal_action[-1])
