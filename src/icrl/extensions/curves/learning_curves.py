"""Learning curves of source agents, from their histories. G training tasks, K learners per task, P points."""

from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from icrl.app.root import Config
from icrl.data.columns import rollout_of
from icrl.data.history_store import Histories, open_histories
from icrl.envs import make_env
from icrl.envs.policies import Chance
from icrl.envs.rollout import OpenEpisodes, finished_episodes
from icrl.evaluation.in_context import play_episodes
from icrl.evaluation.references import exact_references
from icrl.evaluation.tables import LABELS
from icrl.plots import style

NUM_POINTS = 50
EPISODES_A_POINT = 4  # at least, of each environment: a point averages over them
CHANCE_EPISODES = 20  # of each task, if the mean of random play is not known exactly
NUM_SINGLE_TASKS = 5
BAND = (5, 95)  # percentiles over learners


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
        curves, random = learning_curves(histories), None
        if exact := exact_references(env, tasks):
            random = float(np.mean(exact["random"][curves.measure]))
        elif not config.env.unplayable:
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


def learning_figure(curves: LearningCurves, labels: list[str], random: float | None, *, title: str) -> Figure:
    """Left the mean over all learners with a band between two percentiles, right a few single tasks, from the fastest
    to the slowest to learn. `labels` `[G]` name the tasks; `random` is the mean of chance, None if unknown."""
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
        if random is not None:
            lines["random"] = axes.axhline(random, linewidth=1.8, **style.BASELINE)
        axes.set_title(subtitle, fontsize=13)
        axes.set_xlim(left=0)
        axes.set_ylim((-0.02, 1.02) if curves.measure == "success" else None)
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        style.tidy(axes, "env steps of an agent", LABELS[curves.measure] if axes is left else "")
    style.legend_below(figure, lines, num_columns=4)
    return figure
