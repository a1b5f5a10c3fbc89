"""Curves of a training run of stage two, read from its TensorBoard event files and drawn in one picture."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from tensorboard.backend.event_processing.event_accumulator import SCALARS, EventAccumulator

from icrl.contracts import ConfigError
from icrl.plots.charts import legend_below, new_figure, tidy
from icrl.plots.plots import FEW_EPISODES, PALETTE, REFERENCE_COLOR, REFERENCE_DASHES, Floats, save_figure
from icrl.runs.checkpoint import check, sidecars

if TYPE_CHECKING:
    from icrl.config.root import Config

SMOOTHED_PART = 0.05  # of a run, that the line over noisy points averages over

Scalars = dict[str, tuple[Floats, Floats]]  # tag -> steps and values, in order of steps


_FIT = (("train/nll", "negative log likelihood"), ("train/accuracy", "accuracy of the most likely action"))


def write_training_curves(config: Config) -> Path:
    """Draw the run's training as `training.png` beside its event files; returns the picture's path."""
    folder = config.folder("logs") / "gpt"
    checkpoints = sidecars(folder, "best")
    if not checkpoints:
        raise ConfigError(f"no training in {folder}: run `python -m src.train_gpt` with the same options first")
    best = check(checkpoints[0])
    figure = training_figure(
        read_scalars(folder),
        num_actions=best["description"]["env"]["num_actions"],
        best_update=best["step"],
        title=f"Training on histories: {config.name}",
    )
    save_figure(folder / "training.png", figure)
    return folder / "training.png"


def read_scalars(folder: Path) -> Scalars:
    """All curves of the event files in `folder`. Of a step that was logged twice, by a run that was interrupted and
    by the one that went on, the later value counts."""
    events = EventAccumulator(str(folder), size_guidance={SCALARS: 0}).Reload()
    curves: Scalars = {}
    for tag in cast(list[str], events.Tags()[SCALARS]):
        points = sorted({event.step: event.value for event in events.Scalars(tag)}.items())
        steps, values = np.array(points, dtype=float).T
        curves[tag] = (steps, values)
    return curves


def training_figure(curves: Scalars, *, num_actions: int, best_update: int, title: str) -> Figure:
    """Above how well the model predicts the source agents' actions, below what it comes to in context while it is
    trained; all over gradient updates. The best checkpoint is marked."""
    figure = new_figure(title)
    above, below = figure.subplots(2, 2, sharex=True)
    guesses = (math.log(num_actions), 1 / num_actions)
    lines: dict[str, Artist] = {}
    for axes, (tag, label), guess in zip(above, _FIT, guesses, strict=True):
        lines |= _draw_noisy(axes, *curves[tag])
        lines["uniform guess"] = axes.axhline(guess, color=REFERENCE_COLOR, linestyle=REFERENCE_DASHES[0])
        axes.set_title(label, fontsize=13)
    for measure, axes, suffix, style in (
        ("last_success", below[0], "", "-"),
        ("first_success", below[0], ", first episode", ":"),
        ("late_reward", below[1], "", "-"),
    ):
        if found := curves.get(f"in_context/development_{measure}"):
            marker = "o" if len(found[0]) <= FEW_EPISODES and style == "-" else None
            (line,) = axes.plot(*found, color=PALETTE[2], linestyle=style, linewidth=2.0, marker=marker, markersize=5)
            lines.setdefault(f"development tasks{suffix}", line)
    below[0].set_title("success in a stream's last episode, dotted: in its first", fontsize=13)
    below[1].set_title("reward per env step in the second half of a stream", fontsize=13)
    for axes in (*above, *below):
        axes.set_ylim(bottom=0)
        tidy(axes, "gradient update" if axes in below else "", "")
        lines["best checkpoint"] = axes.axvline(
            best_update, color=REFERENCE_COLOR, linestyle=REFERENCE_DASHES[1], linewidth=1.5
        )
    below[0].set_ylim(top=1.02)
    legend_below(figure, lines, num_columns=4)
    return figure


def _draw_noisy(axes: Axes, steps: Floats, values: Floats) -> dict[str, Artist]:
    """Points of single batches as a faint line, and their running mean."""
    (faint,) = axes.plot(steps, values, color=PALETTE[0], alpha=0.3, linewidth=1.0)
    (line,) = axes.plot(steps, running_mean(values, SMOOTHED_PART), color=PALETTE[0], linewidth=2.2)
    return {"one batch": faint, "running mean": line}


def running_mean(values: Floats, part: float) -> Floats:
    """Each value averaged with its neighbours, `part` of all values together; fewer of them near the ends."""
    reach = int(part * len(values) / 2)
    total = np.concatenate([[0.0], values.cumsum()])
    at = np.arange(len(values))
    low, high = np.maximum(at - reach, 0), np.minimum(at + reach + 1, len(values))
    return (total[high] - total[low]) / (high - low)
