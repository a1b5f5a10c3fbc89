"""What stage one shows: one readable board for all agents, a progress bar, and who did not solve its task."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from icrl.collection.episode_statistics import EpisodeStatistics
from icrl.collection.pace import env_steps, interval_of, is_due, num_iterations, unrolled
from icrl.contracts import EnvSpec, Rollout, Step
from icrl.envs.core import TensorEnv
from icrl.evaluation.in_context import play_episodes
from icrl.plots.style import figure_to_array, save_figure
from icrl.plots.task_maps import success_figure
from icrl.plots.video import write_video
from icrl.plots.walks import film, play, walks_of
from icrl.runs.summaries import Progress, Summaries, spread
from icrl.sources.learners import Learner
from icrl.training.inspection import inspect

if TYPE_CHECKING:
    from icrl.config.root import Config

SOLVED = 0.9  # success over its last episodes from which on an agent counts as having solved its task
MOST_PENDING = 100  # unrolls in memory before they are taken into the averages
NUM_EPISODES = 10  # of each stream of a trained agent, to see what it can do
WALKS_PER_VIDEO = 3
FRAMES_PER_SECOND = 6


class SourceBoard:
    """TensorBoard curves over env steps per learner: mean and band over agents, fraction solved, agents on request."""

    def __init__(self, config: Config, spec: EnvSpec, num_tasks: int, first: int) -> None:
        """For a run that goes on from iteration `first`."""
        source, options, self._folder = config.source, config.summaries, config.folder("logs") / "source"
        self._source, self._options = source, options
        self._num_learners = num_tasks * source.num_learners
        self._iterations = num_iterations(source)
        self._interval = interval_of(options.num_summaries, options.summary_interval, self._iterations)
        done = unrolled(source, first) * source.num_envs  # env steps of one learner
        pace = {"flush_secs": options.flush_secs, "max_queue": options.max_queue}
        self._summaries = Summaries(self._folder, done, **pace)
        self._summaries.bands("source agents", ["source/return", "source/success", "source/episode_length"])
        self._agents = [
            Summaries(self._folder / "agents" / f"{k:04d}", done, **pace)
            for k in range(self._num_learners * source.per_agent_curves)
        ]
        self._statistics = EpisodeStatistics(spec, self._num_learners, source.num_envs)
        self._total = env_steps(source) * self._num_learners
        self._progress = Progress("train_agents", self._total, done * self._num_learners, "step")
        self._pending: list[Rollout] = []

    def texts(self, texts: dict[str, str]) -> None:
        self._summaries.texts(texts)

    def add(self, iteration: int, transitions: Rollout, metrics: dict[str, Tensor], learner: Learner) -> None:
        """Take in one iteration: its transitions `[T, B]`, metrics `[L]` and the learners after it."""
        self._pending.append(transitions)
        self._progress.advance(transitions.reward.numel())
        early = self._options.summarize_first_interval and iteration < self._interval
        if not early and not is_due(iteration, self._interval):
            if len(self._pending) >= MOST_PENDING:
                self.summary()
            return
        summary = self.summary()
        steps = unrolled(self._source, iteration) * self._source.num_envs
        for name, values in summary.items():
            self._summaries.scalars(f"source/{name}", spread(values), steps)
            for agent, value in zip(self._agents, values, strict=False):
                if not np.isnan(value):
                    agent.scalars("source", {name: float(value)}, steps)
        solved = {"fraction_solved": float((summary["success"] >= SOLVED).mean())}
        self._summaries.scalars("source", solved, steps)
        self._summaries.scalars("update", {name: value.mean().item() for name, value in metrics.items()}, steps)
        inspect(
            self._summaries,
            self._options,
            steps,
            learner.parameters(),
            lambda: (learner.action_probabilities(_last_step(transitions)), learner.outputs()),
            {name: getattr(transitions, name) for name in ("obs", "action", "reward", "timestep")},
            "source_",
        )
        lines, before = iteration * 10 // self._iterations, (iteration - self._interval) * 10 // self._iterations
        if is_due(iteration, self._interval) and lines > before:
            known = {"return": summary["return"][~np.isnan(summary["return"])]}
            self._progress.log({name: float(values.mean()) for name, values in known.items() if len(values)} | solved)

    def summary(self) -> dict[str, np.ndarray]:
        """Return, success and episode length of each learner's last episodes, `[L]`."""
        if self._pending:
            self._statistics.add(Rollout(*(torch.cat(column) for column in zip(*self._pending, strict=True))))
            self._pending = []
        return self._statistics.summary()

    def state_dict(self) -> dict[str, Any]:
        """The running averages, with all points on disk that were added before."""
        self.summary()
        for summaries in (self._summaries, *self._agents):
            summaries.flush()
        return self._statistics.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._statistics.load_state_dict(state)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._progress.close()
        for summaries in (self._summaries, *self._agents):
            summaries.close()


def examine(config: Config, env: TensorEnv, learner: Learner, tasks: Tensor, held_out: list[int]) -> dict[str, Any]:
    """Watch the trained agents of `tasks` `[G, task_dim]` play fresh episodes, who learn in context after as many as
    an evaluation has: who solved its task, a picture of the success per task on TensorBoard, videos of agents and one
    of all of these."""
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
    summaries = Summaries(folder)
    summaries.image("goals", figure_to_array(figure), env_steps(source))
    summaries.close()
    if source.videos_per_task:
        _write_videos(config, env, tasks, played)
    unsolved = [
        {"task": env.label(task), "success": values.round(3).tolist()}
        for task, values in zip(tasks, success, strict=True)
        if values.min() < SOLVED
    ]
    return {"num_tasks": num_tasks, "success": success.tolist(), "unsolved": unsolved}


def _write_videos(config: Config, env: TensorEnv, tasks: Tensor, played: Rollout) -> None:
    """A video of some agents' first walks, `played` `[T, B]`, and one of all of them side by side. Every task has a
    video before one has two."""
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
    """What the streams showed before their last action."""
    obs, ended = transitions.obs[-1], torch.zeros_like(transitions.terminated[-1])
    nothing = torch.zeros_like(transitions.action[-1])
    return Step(obs, nothing, ended, ended, obs, transitions.timestep[-1], transitions.optimal_action[-1])
