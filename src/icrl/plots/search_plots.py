"""Pictures of a search, drawn by Optuna."""

import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import optuna
from matplotlib import pyplot as plt
from matplotlib.ticker import NullFormatter
from optuna.importance import PedAnovaImportanceEvaluator
from optuna.visualization import matplotlib as plots

from icrl.plots import style

VALUE = "mean success over all episodes of a life"
PLOTS: dict[str, Callable[[optuna.Study], Any]] = {  # by name of the picture; other importances need scikit-learn
    "search": partial(plots.plot_slice, target_name=VALUE),
    "search_history": partial(plots.plot_optimization_history, target_name=VALUE),
    "search_importances": lambda study: plots.plot_param_importances(study, evaluator=PedAnovaImportanceEvaluator()),
    "search_timeline": plots.plot_timeline,
}


def write_search_plots(folder: Path, study: optuna.Study) -> None:
    """Write a picture for each of `PLOTS` into `folder`, 1200 x 700 pixels, in the style of all pictures. Optuna draws
    with pyplot, whose backend, style and figures are left alone."""
    backend = mpl.get_backend(auto_select=False)
    for name, draw in PLOTS.items():
        with mpl.rc_context(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # these functions are experimental, and warn if there are few trials
            plt.switch_backend("agg")  # so that no display is needed
            try:
                figure = np.ravel(draw(study))[0].figure
                plt.close(figure)
            finally:
                with suppress(ImportError):  # a backend that needs a display, on a machine without one
                    plt.switch_backend(backend or "agg")
        figure.set(size_inches=(12.0, 7.0), dpi=style.DPI, layout_engine="constrained", facecolor="white")
        for axes in figure.axes:
            handles, labels = axes.get_legend_handles_labels()
            if legend := axes.get_legend():
                legend.remove()
            if len(labels) > 1:
                style.legend_below(figure, dict(zip(labels, handles, strict=True)))
            axes.set_facecolor("white")
            if axes.get_xscale() == "log":
                axes.xaxis.set_minor_formatter(NullFormatter())
            if axes.get_label() != "<colorbar>":
                style.tidy(axes, axes.get_xlabel(), axes.get_ylabel())
        style.save_figure(folder / f"{name}.png", figure)


def search_table(trials: Sequence[dict[str, Any]], num_best: int = 5) -> str:
    """Table of the best trials, best first: number, value and hyper-parameters of each."""
    ranked = sorted(enumerate(trials, start=1), key=lambda numbered: -numbered[1]["value"])[:num_best]
    rows = [["trial", "success", *(name for name in trials[0] if name != "value")]]
    for number, trial in ranked:
        rows.append([str(number), f"{trial['value']:.3f}", *(f"{trial[name]:.4g}" for name in rows[0][2:])])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])
