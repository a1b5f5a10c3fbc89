"""Curves of the training of a critic, from TensorBoard's event files or tables."""

from __future__ import annotations

from pathlib import Path

import torch
from matplotlib.figure import Figure

from icrl.app.root import Config
from icrl.contracts import ConfigError
from icrl.extensions.curves.training_curves import UNLOGGED, Scalars, draw_noisy, read_scalars
from icrl.extensions.offline_rl.critics import PROGRAM
from icrl.plots import style
from icrl.runs.checkpoint import open_model

BLUE, RED, GREEN = style.PALETTE[:3]
CRITIC_PANELS = {  # title of a panel: tags of its curves, each with name and colour
    "mean absolute TD error": {"td_error": ("Q", BLUE)},
    "terms of the loss": {
        "q1": ("Q", BLUE),
        "value": ("V", RED),
        "conservative": ("conservative", GREEN),
    },
    "mean of Q and V": {"q": ("Q", BLUE), "v": ("V", RED)},
    "largest |Q|": {"largest_q": ("Q", BLUE)},
}


def write_value_curves(config: Config) -> Path:
    """Draw the training of the run's critic as `training.png` beside its event files; returns the picture's path.
    Raises `ConfigError` if its training is not finished, or was not logged."""
    folder = config.folder("logs") / "ilql"
    open_model(folder, "last", PROGRAM, torch.device("cpu"))
    curves = read_scalars(folder)
    if "train/q_over_bound" not in curves:
        raise ConfigError(f"no curves in {folder}: {UNLOGGED}")
    return style.save_figure(folder / "training.png", critic_figure(curves, "Training of values"))


def critic_figure(curves: Scalars, title: str) -> Figure:
    """Curves of `CRITIC_PANELS` over gradient updates, as far as logged, and the bound of |Q| if known; 1200 x 700
    pixels."""
    figure, panels = style.new_panels(title, 2, 2, sharex=True)
    lines: style.Handles = {}
    for axes, (label, tags) in zip(panels, CRITIC_PANELS.items(), strict=True):
        for tag, (name, color) in tags.items():
            if found := curves.get(f"train/{tag}"):
                _, lines[name] = draw_noisy(axes, found, color)
        axes.set_title(label, fontsize=13)
        style.tidy(axes, "gradient update" if axes in panels[2:] else "", "")
    panels[1].set_yscale("log")
    if (share := curves["train/q_over_bound"][1][-1]) > 0:
        lines["bound"] = panels[3].axhline(curves["train/largest_q"][1][-1] / share, **style.BASELINE)
    style.legend_below(figure, lines, num_columns=5)
    return figure
