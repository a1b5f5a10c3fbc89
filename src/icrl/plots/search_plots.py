"""What a search found: how the best value grew, each hyper-parameter against the value, and a table of the best."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter
from numpy.typing import NDArray

from icrl.plots.charts import legend_below, new_figure, tidy
from icrl.plots.plots import COLORMAP, PALETTE, Floats, save_figure

LOG_SCALED = {"learning_rate", "entropy_coefficient", "value_coefficient"}
FEW_VALUES = 6  # an integer option with at most so many values is drawn as a choice
NUM_COLUMNS = 3

Trials = Sequence[dict[str, Any]]
Numbers = NDArray[Any]


def write_search_plots(folder: Path, trials: Trials) -> None:
    """Write `search.png` from trials with their `value` and hyper-parameters."""
    save_figure(folder / "search.png", search_figure(trials))


def search_figure(trials: Trials) -> Figure:
    """The value over trials, then a panel for each hyper-parameter; the darker a point, the earlier the trial."""
    values = np.array([trial["value"] for trial in trials], dtype=float)
    names = [name for name in trials[0] if name != "value"]
    figure = new_figure("Search: mean success over all episodes of a life")
    panels = figure.subplots(-(-(len(names) + 1) // NUM_COLUMNS), NUM_COLUMNS, sharey=True, squeeze=False).ravel()
    lines = _draw_progress(panels[0], values)
    for axes, name in zip(panels[1:], names, strict=False):
        _draw_parameter(axes, name, np.array([trial[name] for trial in trials]), values)
    for index, axes in enumerate(panels):
        axes.set_visible(index <= len(names))
        axes.set_ylim(-0.03, max(1.0, values.max()) + 0.03)
        axes.tick_params(labelleft=index % NUM_COLUMNS == 0)
        axes.set_ylabel("mean success" if index % NUM_COLUMNS == 0 else "")
    legend_below(figure, lines)
    return figure


def search_table(trials: Trials, num_best: int = 5) -> str:
    """The best trials, best first, as text: the value, then each hyper-parameter."""
    ranked = sorted(enumerate(trials, start=1), key=lambda numbered: -numbered[1]["value"])[:num_best]
    names = [name for name in trials[0] if name != "value"]
    rows = [["trial", "success", *names]]
    rows += [
        [str(number), f"{trial['value']:.3f}", *(f"{trial[name]:.4g}" for name in names)] for number, trial in ranked
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def _draw_progress(axes: Axes, values: Floats) -> dict[str, Artist]:
    """Each trial's value and the best so far; returns what the legend is to explain, best trial included."""
    number = np.arange(1, len(values) + 1)
    best = values.argmax()
    (so_far,) = axes.plot(
        number, np.maximum.accumulate(values), color=PALETTE[0], linewidth=2.2, drawstyle="steps-post"
    )
    points = _draw_trials(axes, number, values)
    star = axes.scatter(number[best], values[best], **_BEST)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlim(0.5, len(values) + 0.5)
    tidy(axes, "trial", "")
    return {"best so far": so_far, "trial (dark: early, light: late)": points, "best trial": star}


def _draw_parameter(axes: Axes, name: str, tried: Numbers, values: Floats) -> None:
    choices = np.unique(tried)
    if tried.dtype.kind in "iu" and len(choices) <= FEW_VALUES:
        tried = np.searchsorted(choices, tried)  # evenly spaced, whatever the values
        axes.set_xticks(np.arange(len(choices)), [str(choice) for choice in choices])
        axes.set_xlim(-0.5, len(choices) - 0.5)
    elif name in LOG_SCALED:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 3) if tried.max() < 300 * tried.min() else (1,)))
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
    _draw_trials(axes, tried, values)
    axes.scatter(tried[values.argmax()], values.max(), **_BEST)
    tidy(axes, name, "")


def _draw_trials(axes: Axes, where: Numbers, values: Floats) -> Artist:
    order = np.arange(len(values))
    return axes.scatter(
        where,
        values,
        c=order,
        cmap=colormaps[COLORMAP],
        norm=Normalize(0, 1.2 * len(values)),  # the lightest colours would be lost on white
        s=42,
        edgecolors="white",
        linewidths=0.6,
        zorder=2,
    )


_BEST: dict[str, Any] = {
    "marker": "*",
    "s": 330,
    "color": PALETTE[1],
    "edgecolors": "white",
    "linewidths": 1.0,
    "zorder": 3,
}
