"""Pictures of a search, drawn by Optuna, and a table of its best trials."""

import warnings
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import optuna
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter
from optuna.visualization import matplotlib as optuna_plots

from icrl.plots.style import legend_below, save_figure, tidy

VALUE = "mean success over all episodes of a life"
PLOTS = {  # name of the picture: title, function of Optuna, whether it takes the name of the value
    "search": ("Value of each trial by hyper-parameter", optuna_plots.plot_slice, True),
    "search_history": ("Value of each trial, and the best so far", optuna_plots.plot_optimization_history, True),
    "search_importances": ("Importance of each hyper-parameter", optuna_plots.plot_param_importances, False),
    "search_timeline": ("Time of each trial", optuna_plots.plot_timeline, False),
}


def write_search_plots(folder: Path, study: optuna.Study) -> list[Path]:
    """Write a picture for each of `PLOTS` into `folder`, 1200 x 700 pixels; returns their paths. Trials with start and
    end times are on the timeline."""
    return [save_figure(folder / f"{name}.png", _figure(study, name)) for name in PLOTS]


def _figure(study: optuna.Study, name: str) -> Figure:
    """Figure that Optuna draws, in the style of all pictures. Leaves the backend, style and figures of pyplot alone."""
    title, draw, takes_value = PLOTS[name]
    arguments: dict[str, Any] = {"target_name": VALUE} if takes_value else {}
    if draw is optuna_plots.plot_param_importances:
        arguments["evaluator"] = optuna.importance.PedAnovaImportanceEvaluator()  # the other ones need scikit-learn
    backend = mpl.get_backend(auto_select=False)
    with mpl.rc_context(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # these functions are experimental, and warn if there are few trials
        plt.switch_backend("agg")  # so that no display is needed
        try:
            panels: Any = draw(study, **arguments)
            figure = np.ravel(panels)[0].figure
            plt.close(figure)
        finally:
            with suppress(ImportError):  # a backend that needs a display, on a machine without one
                plt.switch_backend(backend or "agg")
    figure.set_size_inches(12.0, 7.0)
    figure.set_dpi(100)
    figure.set_layout_engine("constrained")
    figure.set_facecolor("white")
    figure.suptitle(title, fontsize=15)
    for axes in figure.axes:
        handles, labels = axes.get_legend_handles_labels()
        if legend := axes.get_legend():
            legend.remove()
        if len(labels) > 1:
            legend_below(figure, dict(zip(labels, handles, strict=True)))
        axes.set_title("", loc="left")
        axes.set_title("")
        axes.set_facecolor("white")
        if axes.get_xscale() == "log":
            axes.xaxis.set_minor_formatter(NullFormatter())
        if axes.get_label() != "<colorbar>":
            tidy(axes, axes.get_xlabel(), axes.get_ylabel())
    return figure


def search_table(trials: Sequence[dict[str, Any]], num_best: int = 5) -> str:
    """Table of the best trials, best first: number, value and hyper-parameters of each."""
    ranked = sorted(enumerate(trials, start=1), key=lambda numbered: -numbered[1]["value"])[:num_best]
    names = [name for name in trials[0] if name != "value"]
    rows = [["trial", "success", *names]]
    for number, trial in ranked:
        rows.append([str(number), f"{trial['value']:.3f}", *(f"{trial[name]:.4g}" for name in names)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])
