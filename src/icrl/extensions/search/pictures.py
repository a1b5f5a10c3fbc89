"""Pictures of a search, drawn by Optuna."""

import warnings
from collections.abc import Callable
from contextlib import suppress
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

PLOTS: dict[str, Callable[[optuna.Study, str], Any]] = {  # by name of the picture; other importances need scikit-learn
    "search": lambda study, value: plots.plot_slice(study, target_name=value),
    "search_history": lambda study, value: plots.plot_optimization_history(study, target_name=value),
    "search_importances": lambda study, _: plots.plot_param_importances(study, evaluator=PedAnovaImportanceEvaluator()),
    "search_timeline": lambda study, _: plots.plot_timeline(study),
}


def write_search_plots(folder: Path, study: optuna.Study, value: str) -> None:
    """Write a picture for each of `PLOTS` into `folder`, 1200 x 700 pixels, in the style of all pictures; `value` says
    what the value of a trial is. Optuna draws with pyplot, whose backend, style and figures are left alone."""
    backend = mpl.get_backend(auto_select=False)
    for name, draw in PLOTS.items():
        with mpl.rc_context(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # these functions are experimental, and warn if there are few trials
            plt.switch_backend("agg")  # so that no display is needed
            try:
                figure = np.ravel(draw(study, value))[0].figure
                plt.close(figure)
            finally:
                with suppress(ImportError):  # a backend that needs a display, on a machine without one
                    plt.switch_backend(backend or "agg")
        # The colour bar of a single slice has rows without height, which the constrained layout divides by.
        layout = "tight" if name == "search" and len(study.best_params) == 1 else "constrained"
        figure.set(size_inches=(12.0, 7.0), dpi=style.DPI, layout_engine=layout, facecolor="white")
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
                xlabel = axes.get_xlabel().replace(".", ".\n", 1)  # names of options are long
                style.tidy(axes, xlabel, axes.get_ylabel())
        style.save_figure(folder / f"{name}.png", figure)


def shown(value: Any) -> str:
    """Value of an option as it is written on the command line, a number with four digits."""
    if isinstance(value, float):
        return f"{value:.4g}"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
