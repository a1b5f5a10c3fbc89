"""Learning curves of source agents, from their histories: success over the env steps of each learner.

G training tasks, K learners per task, P points of a curve.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter
from torch import Tensor

from icrl.contracts import Rollout
from icrl.data.history_store import Histories, open_histories
from icrl.envs import make_env
from icrl.envs.core import TensorEnv
from icrl.envs.episodes import Episodes, OpenEpisodes, finished_episodes
from icrl.evaluation.in_context import play_episodes
from icrl.evaluation.references import chance, exact_references
from icrl.plots.style import BASELINE, PALETTE, Floats, Handles, legend_below, new_figure, save_figure, tidy

if TYPE_CHECKING:
    from icrl.config.root import Config

NUM_POINTS = 50
EPISODES_A_POINT = 4  # at least, of each environment: a point averages over them
CHANCE_EPISODES = 20  # of each task, if the success of random play is not known exactly
NUM_SINGLE_TASKS = 5
BAND = (5, 95)  # percentiles over learners


class LearningCurves(NamedTuple):
    """Success rate of the episodes of each learner, along its life."""

    env_steps: Floats  # [P] env steps of a learner, all its environments together
    success: Floats  # [G, K, P]


def write_learning_curves(config: Config) -> Path:
    """Draw the histories of the run's source agents as `learning.png` beside its logs; returns the picture's path."""
    histories = open_histories(config.folder("histories"))
    with closing(make_env(config.env, torch.device("cpu"))) as env:
        tasks = env.all_tasks()[histories.manifest["tasks"]["train"]]
        labels, title = [env.label(task) for task in tasks], f"Source agents over their lives: {config.name}"
        figure = learning_figure(learning_curves(histories), labels, _chance_success(config, env, tasks), title=title)
    return save_figure(config.folder("logs") / "source" / "learning.png", figure)


def _chance_success(config: Config, env: TensorEnv, tasks: Tensor) -> float:
    """Success rate of uniformly random play, exact if the world is small enough to compute it."""
    if exact := exact_references(env, tasks):
        return exact["random"].success.mean().item()
    return float(play_episodes(chance(env, config), env, tasks, 1, CHANCE_EPISODES, config.seed)[0].success.mean())


def learning_curves(histories: Histories, num_points: int = NUM_POINTS) -> LearningCurves:
    """Cut the lives into `num_points` equal parts, or fewer, so that each part holds some episodes of every
    environment. An episode counts in the part in which it ends."""
    rows = histories.manifest["rows"]
    num_learners, num_envs = rows["num_learners"], rows["num_envs"]
    num_tasks, num_steps = len(histories.manifest["tasks"]["train"]), histories.columns["obs"].shape[1]
    num_points = max(1, min(num_points, num_steps // (EPISODES_A_POINT * histories.spec.max_episode_steps)))
    ended, won = np.zeros((2, num_tasks, num_learners, num_points))
    for task in range(num_tasks):
        episodes = _episodes_of(histories, task, num_learners * num_envs)
        part = _last_step(episodes) * num_points // num_steps
        np.add.at(ended[task], (episodes.stream // num_envs, part), 1)
        np.add.at(won[task], (episodes.stream // num_envs, part), episodes.success)
    middle = (np.arange(num_points) + 0.5) / num_points
    return LearningCurves(middle * num_steps * num_envs, won / np.maximum(ended, 1))


def _episodes_of(histories: Histories, task: int, rows_per_task: int) -> Episodes:
    """Finished episodes in the rows of one training task, given by its index in `train`."""
    rows = slice(task * rows_per_task, (task + 1) * rows_per_task)
    columns = (histories.columns[name][rows].swapaxes(0, 1).astype(np.int64) for name in Rollout._fields)
    lives = Rollout(*map(torch.from_numpy, columns))
    return finished_episodes(lives, OpenEpisodes.none(rows_per_task), histories.spec)[0]


def _last_step(episodes: Episodes) -> np.ndarray:
    """Step of its row that each episode ends on: episodes follow each other without gaps."""
    total = episodes.length.cumsum()
    first = np.searchsorted(episodes.stream, episodes.stream)  # the first episode of the same row
    return total - (total - episodes.length)[first] - 1


def learning_figure(curves: LearningCurves, labels: list[str], random: float, *, title: str) -> Figure:
    """Left the mean over all learners with a band between two percentiles, right a few single tasks, from the fastest
    to the slowest to learn. `labels` `[G]` name the tasks; `random` is the success of chance."""
    figure = new_figure(title)
    left, right = figure.subplots(1, 2, sharey=True)
    lines = _draw_all_learners(left, curves) | _draw_single_tasks(right, curves, labels)
    for axes, subtitle in ((left, "all agents"), (right, "single tasks, mean over the agents of each")):
        lines["random"] = axes.axhline(random, linewidth=1.8, **BASELINE)
        axes.set_title(subtitle, fontsize=13)
        axes.set_xlim(left=0)
        axes.set_ylim(-0.02, 1.02)
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        tidy(axes, "env steps of an agent", "success" if axes is left else "")
    legend_below(figure, lines, num_columns=4)
    return figure


def _draw_all_learners(axes: Axes, curves: LearningCurves) -> Handles:
    each = curves.success.reshape(-1, len(curves.env_steps))  # [G * K, P]
    low, high = np.percentile(each, BAND, axis=0)
    band = axes.fill_between(curves.env_steps, low, high, color=PALETTE[0], alpha=0.2, linewidth=0)
    (mean,) = axes.plot(curves.env_steps, each.mean(0), color=PALETTE[0], linewidth=2.2)
    return {"mean": mean, f"{BAND[0]} to {BAND[1]} % of agents": band}


def _draw_single_tasks(axes: Axes, curves: LearningCurves, labels: list[str]) -> Handles:
    mean = curves.success.mean(1)  # [G, P]
    fastest_first = mean.mean(1).argsort()[::-1]
    chosen = np.unique(np.linspace(0, len(labels) - 1, NUM_SINGLE_TASKS).round().astype(int))
    lines: Handles = {}
    for task, color in zip(fastest_first[chosen], PALETTE[1:], strict=False):
        (lines[labels[task]],) = axes.plot(curves.env_steps, mean[task], color=color, linewidth=2.0)
    return lines
