"""Pictures of a search: how the best value grew, and each hyper-parameter against the value."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from src.evaluation.plots import save_figure

LOG_SCALED = {"learning_rate", "entropy_coefficient", "value_coefficient"}


def write_search_plots(folder: Path, trials: Sequence[dict[str, Any]]) -> None:
    """Write `search.png` from trials with their `value` and hyper-parameters."""
    values = np.array([trial["value"] for trial in trials])
    names = [name for name in trials[0] if name != "value"]
    figure = Figure(figsize=(12, 7), dpi=100, layout="constrained")
    figure.suptitle("Search of source hyper-parameters: mean success over a life", fontsize=15)
    panels = figure.subplots(2, 3).ravel()
    panels[0].plot(np.maximum.accumulate(values), drawstyle="steps-post", label="best so far")
    panels[0].plot(values, "o", markersize=5, alpha=0.6, label="trial")
    panels[0].set(xlabel="trial", ylabel="mean success")
    panels[0].legend()
    best = int(values.argmax())
    for axes, name in zip(panels[1:], names, strict=True):
        tried = np.array([trial[name] for trial in trials], dtype=float)
        axes.plot(tried, values, "o", markersize=5, alpha=0.6)
        axes.plot(tried[best], values[best], "*", markersize=16)
        axes.set(xlabel=name, xscale="log" if name in LOG_SCALED else "linear")
    for axes in panels:
        axes.grid(alpha=0.3)
    save_figure(folder / "search.png", figure)
