"""Pictures of source agents in and after stage one. G training tasks, K learners per task, L learners, P points."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter
from torch import Tensor

from icrl.collection.collect import Learner
from icrl.collection.episode_statistics import EpisodeStatistics
from icrl.contracts import Env, Rollout, Step
from icrl.data.columns import rollout_of
from icrl.data.history_store import Histories, open_histories
from icrl.envs import make_env
from icrl.envs.core import State, TensorEnv
from icrl.envs.rollout import OpenEpisodes, finished_episodes
from icrl.evaluation.in_context import play_episodes, seeds_of_play
from icrl.evaluation.protocol import exact_numbers
from icrl.evaluation.references import exact_references
from icrl.evaluation.scripted.unlearned import Chance
from icrl.evaluation.tables import LABELS
from icrl.plots import style
from icrl.plots.figures import success_figure
from icrl.plots.walks import Film, film, play, walks_of
from icrl.runs.metrics import MetricLogger, Progress, distribution, shown
from icrl.runs.processes import progress_bar
from icrl.sources.pace import clock_of, due_steps, env_steps, num_iterations
from icrl.training.curves import inspect

if TYPE_CHECKING:
    from icrl.app.root import Config

SOLVED = 0.9  # success over its last episodes from which on an agent counts as having solved its task
NUM_EPISODES = 10  # of each stream of a trained agent
MOST_EXACT = 100  # tasks over which exact returns beside those of agents are averaged
WALKS_PER_VIDEO = 3
FRAMES_PER_SECOND = 6
NUM_POINTS = 50
EPISODES_A_POINT = 4  # at least, of each environment: a point averages over them
CHANCE_EPISODES = 20  # of each task, if the mean of random play is not known exactly
NUM_SINGLE_TASKS = 5
BAND = (5, 95)  # percentiles over learners


class SourceCurves:
    """Curves of stage one over env steps per learner: mean and band over all learners, the fraction that solved its
    task, and each learner's own on request."""

    def __init__(self, config: Config, env: Env[State], tasks: Tensor, first: int) -> None:
        """Curves of a run on `tasks` `[G, task_dim]` that resumes from iteration `first`."""
        self._source, self._options = source, options = config.source, config.summaries
        folder, num_learners = config.folder("logs") / "source", len(tasks) * source.num_learners
        done = due_steps(source, first) * source.num_envs  # env steps of one learner
        amounts = env_steps(source) * num_learners, done * num_learners, "step"
        if source.trains_on:  # the steps end before the run does
            amounts = num_iterations(source) - source.pretraining, max(first - source.pretraining, 0), "iteration"
        progress = Progress("train_agents", *amounts)
        self._logger = MetricLogger(folder, done, options, num_iterations(source), progress, first)
        self._learned = ""
        self._logger.bands("source agents", ["source/return", "source/success", "source/episode_length"])
        self._own = [
            MetricLogger(folder / "agents" / f"{k:04d}", done, options)
            for k in range(num_learners * source.per_agent_curves)
        ]
        self._mini_batches: MetricLogger | None = None
        if options.update_counter_every_mini_batch:  # in a folder of its own, because its steps are updates
            updates, total = (clock_of(source, iteration).updates for iteration in (first, num_iterations(source)))
            self._mini_batches = MetricLogger(folder / "mini_batches", updates, options, total)
        self.loggers = [self._logger, *self._own, *([self._mini_batches] if self._mini_batches else [])]
        self.statistics = EpisodeStatistics(env.spec, num_learners, source.num_envs, options.metric_buffer_size)
        exact = exact_references(env, tasks[:MOST_EXACT]) if isinstance(env, TensorEnv) else {}
        beside = ", ".join(
            f"{name} {expectation.episode_return.mean().item():.3g}" for name, expectation in exact.items()
        )
        self._beside = f" ({beside})" if beside else ""

    def add_update(self, update: int, metrics: dict[str, Tensor]) -> None:
        """Take in the metrics `[L]` of an update, counted from 1."""
        if self._mini_batches and self._mini_batches.due(update):
            means = {name: value.mean().item() for name, value in metrics.items()}
            self._mini_batches.scalars("mini_batch", means, update)

    def add(self, iteration: int, transitions: Rollout, metrics: dict[str, Tensor], learner: Learner) -> None:
        """Take in one iteration: its transitions `[T, B]`, metrics `[L]` and the learners after it. After the last env
        step (T = 0), metrics are shown over the steps that the iterations would have made."""
        played = len(transitions.obs) > 0
        self._logger.advance(1 if self._source.trains_on else transitions.reward.numel())
        if played:
            self.statistics.add(transitions)
        if not self._logger.due(iteration):
            return
        steps = due_steps(self._source, iteration) * self._source.num_envs
        self._logger.scalars("update", {name: value.mean().item() for name, value in metrics.items()}, steps)
        if played:
            self._learned = self._add_episodes(steps, transitions, learner)
        self._logger.tell(iteration, self._learned)

    def _add_episodes(self, steps: int, transitions: Rollout, learner: Learner) -> str:
        """Show the latest episodes and what is inspected; returns words for the progress line: return and success of
        these episodes, beside the return of references, and the fraction of tasks that are solved; the return alone as
        long as there is no success."""
        summary = self.statistics.summary()
        all_ended = not np.isnan(summary["return"]).any()  # before, only agents that were lucky have ended an episode
        for name, values in summary.items():
            if all_ended:
                self._logger.scalars(f"source/{name}", distribution(values), steps)
            for logger, value in zip(self._own, values, strict=False):
                if not np.isnan(value):
                    logger.scalars("source", {name: float(value)}, steps)
        solved = {"fraction_solved": float((summary["success"] >= SOLVED).mean())}
        self._logger.scalars("source", solved, steps)

        def policy() -> tuple[Tensor | None, dict[str, Tensor]]:
            counted = not transitions.action.is_floating_point() and not learner.has_memory
            last, _ = learner.remember((), _last_step(transitions)) if counted else (None, None)
            return learner.action_probabilities(last) if last else None, learner.outputs()

        data = {name: getattr(transitions, name) for name in ("obs", "action", "reward", "timestep")}
        inspect(self._logger, self._options, steps, learner.parameters(), policy, data, "source_")
        told = shown({"solved": solved["fraction_solved"]})
        if not all_ended:
            return told
        means = {name: float(summary[name].mean()) for name in ("return", "success")}
        returns = f"{shown({'return': means['return']})}{self._beside}"
        return f"{returns}  {shown({'success': means['success']})}  {told}" if means["success"] else returns

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for logger in self.loggers:
            logger.close()


def _last_step(transitions: Rollout) -> Step:
    """Step of the streams before their last action."""
    last = transitions.each(lambda column: column[-1])
    nothing, never = torch.zeros_like(last.action), torch.zeros_like(last.terminated)
    return Step(last.obs, nothing, never, never, last.obs, last.timestep, last.optimal_action)


def examine(config: Config, env: TensorEnv, learner: Learner, tasks: Tensor, held_out: list[int]) -> dict[str, Any]:
    """Success of the trained agents of `tasks` `[G, task_dim]` on fresh episodes, and if there is none their mean
    return, with a picture on TensorBoard and videos of agents. Agents that learn in context first play as many episodes
    as an evaluation has."""
    source, num_tasks = config.source, len(tasks)
    num_episodes = max(NUM_EPISODES, config.evaluation.num_episodes) if source.in_context else NUM_EPISODES
    num_streams = source.num_learners * source.num_envs
    adaptation, played = play_episodes(learner, env, tasks, num_streams, num_episodes, config.seed)
    last = (values[..., -NUM_EPISODES:] for values in (adaptation.success, adaptation.returns))
    success, returns = (values.reshape(num_tasks, source.num_learners, -1).mean(-1) for values in last)
    measure, values = ("success", success) if success.any() else ("returns", returns)
    parts = (tasks, values.mean(1).tolist()), (env.all_tasks()[held_out], []), (tasks[:0], [])
    title = f"{LABELS[measure].capitalize()} of the trained agents on each task"
    figure = success_figure(env, *parts, title=title, label=LABELS[measure])
    folder = config.folder("logs") / "source"
    pixels = style.figure_to_array(figure)
    style.save_picture(folder / "goals.png", pixels)
    with MetricLogger(folder, options=config.summaries) as logger:
        logger.image("goals", pixels, env_steps(source))
    if source.videos_per_task and not env.not_filmed:
        _write_videos(config, env, tasks, played)
    failed = [task for task in range(num_tasks) if success[task].min() < SOLVED]
    unsolved = [{"task": env.label(tasks[task]), "success": success[task].round(3).tolist()} for task in failed]
    results: dict[str, Any] = {"num_tasks": num_tasks, "success": success.tolist(), "unsolved": unsolved}
    if not success.any():
        results["return"] = float(returns.mean())
    return results


def _write_videos(config: Config, env: TensorEnv, tasks: Tensor, played: Rollout) -> None:
    """Write a video of some agents' first walks, `played` `[T, B]`, and one of all of them side by side. Every task has
    a video before one has two."""
    source, folder = config.source, config.folder("videos") / "source"
    agents = [(task, k) for k in range(source.videos_per_task) for task in range(len(tasks))]
    seeds, films = seeds_of_play(config.seed, played.obs.shape[1]), dict[str, Film]()
    for task, k in sorted(agents[: source.max_videos or None]):
        stream = (task * source.num_learners + k) * source.num_envs
        walks = walks_of(env, played, stream, tasks[task], int(seeds[stream]))[:WALKS_PER_VIDEO]
        films[f"{env.label(tasks[task])}_agent_{k}.mp4"] = film(walks, env.map_view(tasks[task]))

    def write(name: str) -> None:
        style.write_video(folder / name, play([films[name]]), FRAMES_PER_SECOND)

    with ThreadPoolExecutor(os.cpu_count()) as encoders:  # each writes through an ffmpeg process of its own
        list(progress_bar(encoders.map(write, films), total=len(films), desc="videos", unit="video"))
    style.write_video(folder / "all_agents.mp4", play([*films.values()]), FRAMES_PER_SECOND)


class LearningCurves(NamedTuple):
    """Success rate of the episodes of each learner along its life, or their mean return if no learner has a success."""

    env_steps: style.Floats  # [P] env steps of a learner, all its environments together
    mean: style.Floats  # [G, K, P]
    measure: str = "success"


def write_learning_curves(config: Config) -> Path:
    """Draw the histories of the run's source agents as `learning.png` beside its logs; returns the picture's path."""
    histories = open_histories(config.folder("histories"))
    with closing(make_env(config.env, torch.device("cpu"))) as env:
        tasks = env.all_tasks()[histories.manifest["tasks"]["train"]]
        curves = learning_curves(histories)
        if exact := exact_numbers(exact_references(env, tasks)):
            random = float(np.mean(exact["random"][curves.measure]))
        else:
            played, _ = play_episodes(Chance(env.spec), env, tasks, 1, CHANCE_EPISODES, config.seed)
            random = float(getattr(played, curves.measure).mean())
        labels, title = [env.label(task) for task in tasks], "Source agents over their lives"
        figure = learning_figure(curves, labels, random, title=title)
    return style.save_figure(config.folder("logs") / "source" / "learning.png", figure)


def learning_curves(histories: Histories, num_points: int = NUM_POINTS) -> LearningCurves:
    """Cut the lives into `num_points` equal parts, or fewer, so that each part holds some episodes of every
    environment. An episode counts in the part in which it ends."""
    rows = histories.manifest["rows"]
    num_learners, num_envs = rows["num_learners"], rows["num_envs"]
    num_tasks, num_steps = len(histories.manifest["tasks"]["train"]), histories.columns["obs"].shape[1]
    num_points = max(1, min(num_points, num_steps // (EPISODES_A_POINT * histories.spec.max_episode_steps)))
    ended, won, paid = np.zeros((3, num_tasks, num_learners, num_points))
    num_rows = num_learners * num_envs  # of a task
    for task in range(num_tasks):
        rows = slice(task * num_rows, (task + 1) * num_rows)
        columns = {name: column[rows].swapaxes(0, 1) for name, column in histories.columns.items()}
        lives = rollout_of(histories.spec, columns)
        episodes, _ = finished_episodes(lives, OpenEpisodes.none(num_rows), histories.spec)
        total = episodes.length.cumsum()  # episodes follow each other without gaps
        first = np.searchsorted(episodes.stream, episodes.stream)  # the first episode of the same row
        last_step = total - (total - episodes.length)[first] - 1
        where = episodes.stream // num_envs, last_step * num_points // num_steps
        np.add.at(ended[task], where, 1)
        np.add.at(won[task], where, episodes.success)
        np.add.at(paid[task], where, episodes.returns)
    middle = (np.arange(num_points) + 0.5) / num_points
    measure, values = ("success", won) if won.any() else ("returns", paid)
    return LearningCurves(middle * num_steps * num_envs, values / np.maximum(ended, 1), measure)


def learning_figure(curves: LearningCurves, labels: list[str], random: float, *, title: str) -> Figure:
    """Left the mean over all learners with a band between two percentiles, right a few single tasks, from the fastest
    to the slowest to learn. `labels` `[G]` name the tasks; `random` is the mean of chance."""
    figure, (left, right) = style.new_panels(title, 1, 2, sharey=True)
    lines: style.Handles = {}
    each = curves.mean.reshape(-1, len(curves.env_steps))  # [G * K, P]
    low, high = np.percentile(each, BAND, axis=0)
    band = left.fill_between(curves.env_steps, low, high, color=style.PALETTE[0], alpha=0.2, linewidth=0)
    (lines["mean"],) = left.plot(curves.env_steps, each.mean(0), color=style.PALETTE[0], linewidth=2.2)
    lines[f"{BAND[0]} to {BAND[1]} % of agents"] = band
    mean = curves.mean.mean(1)  # [G, P]
    fastest_first = mean.mean(1).argsort()[::-1]
    chosen = np.unique(np.linspace(0, len(labels) - 1, NUM_SINGLE_TASKS).round().astype(int))
    for task, color in zip(fastest_first[chosen], style.PALETTE[1:], strict=False):
        (lines[labels[task]],) = right.plot(curves.env_steps, mean[task], color=color, linewidth=2.0)
    for axes, subtitle in ((left, "all agents"), (right, "single tasks, mean over the agents of each")):
        lines["random"] = axes.axhline(random, linewidth=1.8, **style.BASELINE)
        axes.set_title(subtitle, fontsize=13)
        axes.set_xlim(left=0)
        axes.set_ylim((-0.02, 1.02) if curves.measure == "success" else None)
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        style.tidy(axes, "env steps of an agent", LABELS[curves.measure] if axes is left else "")
    style.legend_below(figure, lines, num_columns=4)
    return figure
