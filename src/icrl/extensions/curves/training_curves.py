"""Curves of the training of a sequence model, from TensorBoard's event files or tables."""

import math
from pathlib import Path
from typing import Any, cast

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from tensorboard.backend.event_processing.event_accumulator import SCALARS, EventAccumulator

from icrl.app.root import Config
from icrl.config.modules import command_of
from icrl.contracts import ConfigError
from icrl.extensions.curves.table import CSV, read_table
from icrl.plots import style
from icrl.runs.checkpoint import check, sidecars
from icrl.spaces import EnvSpec

UNLOGGED = (
    "it was trained with summaries.num_summaries=0 and summaries.summary_interval=0, or with a summaries.writer other "
    "than tensorboard and csv"
)
_FIT = ("nll", "accuracy", "action_error")
SMOOTHED_PART = 0.05  # part of a run that the line over noisy points averages over
BLUE, RED, GREEN, PINK = style.PALETTE[:4]
BEST: dict[str, Any] = {"color": style.REFERENCE_COLORS[0], "linestyle": style.REFERENCE_DASHES[1], "linewidth": 1.5}
MODEL_PANELS = (
    "negative log likelihood",
    "accuracy of the most likely action",
    "success in a stream's last episode, dotted: in its first",
    "reward per env step in the second half of a stream",
)
_MISSING = (np.array([np.nan]), np.array([np.nan]))  # a curve that an objective of a user may lack
Scalars = dict[str, tuple[style.Floats, style.Floats]]  # tag -> steps and values, in order of steps


def write_training_curves(config: Config) -> Path:
    """Draw the training of the run's model as `training.png` beside its event files; returns the picture's path."""
    folder = config.folder("logs") / "gpt"
    best, last = sidecars(folder, "best"), sidecars(folder, "last")
    if not best and not last:
        raise ConfigError(f"no training in {folder}: run `{command_of('train_gpt')}` with the same options first")
    about = check((best or last)[0])
    actions, title = EnvSpec.of(about["description"]["env"]).action_space, "Training on histories"
    num_actions = math.prod(np.atleast_1d(getattr(actions, "nvec", getattr(actions, "n", 0))).tolist())
    curves = read_scalars(folder) | (read_scalars(folder / "evals") if best else {})
    if not {f"train/{tag}" for tag in _FIT} & curves.keys():
        raise ConfigError(f"no curves in {folder}: {UNLOGGED}")
    figure = model_figure(curves, num_actions, about["step"] if best else None, title)
    return style.save_figure(folder / "training.png", figure)


def read_scalars(folder: Path) -> Scalars:
    """All curves of the event files in `folder`, or without any of its table of curves; of a step that was logged
    twice, after an interruption, the later value."""
    if not [*folder.glob("events.*")]:
        return read_table(folder / CSV) if (folder / CSV).exists() else {}
    events = EventAccumulator(str(folder), size_guidance={SCALARS: 0}).Reload()
    curves: Scalars = {}
    for tag in cast(list[str], events.Tags()[SCALARS]):
        points = sorted({event.step: event.value for event in events.Scalars(tag)}.items())
        steps, values = np.array(points, dtype=float).T
        curves[tag] = (steps, values)
    return curves


def model_figure(curves: Scalars, num_actions: int, best_update: int | None, title: str) -> Figure:
    """Fit to the source agents' actions above, performance in context below, over gradient updates; the best is
    marked. Without evaluations, `best_update` is None, and there is nothing below. `num_actions` is 0 if they cannot be
    counted."""
    figure, panels = style.new_panels(title, 1 if best_update is None else 2, 2, sharex=True)
    likelihood, accuracy, *in_context = panels
    lines: style.Handles = {}
    guesses = (math.log(num_actions), 1 / num_actions) if num_actions else (None, None)
    tags = ("nll", "accuracy" if num_actions else "action_error")
    for axes, tag, guess in zip((likelihood, accuracy), tags, guesses, strict=True):
        lines["one batch"], lines["running mean"] = draw_noisy(axes, curves.get(f"train/{tag}", _MISSING), BLUE)
        if guess is not None:
            lines["uniform guess"] = axes.axhline(guess, **style.BASELINE)
    for place, measure, suffix, dashes in (
        (0, "last_success", "", "-"),
        (0, "first_success", ", first episode", ":"),
        (1, "late_reward", "", "-"),
    ):
        if in_context and (curve := curves.get(f"in_context/development_{measure}")):
            dots = "o" if len(curve[0]) <= style.FEW_POINTS and dashes == "-" else None
            look: Any = {"color": GREEN, "linestyle": dashes, "linewidth": 2.0, "marker": dots, "markersize": 5}
            (line,) = in_context[place].plot(*curve, **look)
            lines.setdefault(f"development tasks{suffix}", line)
    for axes, label in zip(panels, MODEL_PANELS, strict=False):
        axes.set_title(label, fontsize=13)
        if num_actions or axes is not likelihood:  # a log-density may be above 0
            axes.set_ylim(bottom=0)
        style.tidy(axes, "gradient update" if axes in panels[-2:] else "", "")
        if best_update is not None:
            lines["best checkpoint"] = axes.axvline(best_update, **BEST)
    if not num_actions:
        accuracy.set_title("mean absolute error of the action", fontsize=13)
    if in_context:
        in_context[0].set_ylim(top=1.02)
    style.legend_below(figure, lines, num_columns=4)
    return figure


def draw_noisy(axes: Axes, curve: tuple[style.Floats, style.Floats], color: str) -> tuple[style.Artist, style.Artist]:
    """Draw values of single batches as a faint line, and their running mean; returns both lines."""
    (faint,) = axes.plot(*curve, color=color, alpha=0.3, linewidth=1.0)
    (line,) = axes.plot(curve[0], running_mean(curve[1], SMOOTHED_PART), color=color, linewidth=2.2)
    return faint, line


def running_mean(values: style.Floats, part: float) -> style.Floats:
    """Average each value with its neighbours, `part` of all values together; fewer of them near the ends."""
    reach, at = int(part * len(values) / 2), np.arange(len(values))
    total = np.concatenate([[0.0], values.cumsum()])
    low, high = np.maximum(at - reach, 0), np.minimum(at + reach + 1, len(values))
    return (total[high] - total[low]) / (high - low)
