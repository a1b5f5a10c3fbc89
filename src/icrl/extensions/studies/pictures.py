"""Picture of a study: adaptation curves of its variants, and their performance over the last episodes.

A variant has a place on the axis, its `x`: a number or a name. Without one, its own name is its place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator, StrMethodFormatter
from matplotlib.transforms import offset_copy

from icrl.evaluation.protocol import shown_part
from icrl.evaluation.tables import LABELS
from icrl.extensions.curves.adaptation_curves import Result, shared_references, shown_curve
from icrl.extensions.studies.options import StudyConfig
from icrl.plots import style

FEW_CURVES = 6  # intervals are drawn for at most this many curves
LOG_FROM = 8.0  # an axis is logarithmic if the ratio of its largest to its smallest place is at least this
APART, APART_AT_NAMES = 6.0, 10.0  # points between intervals of different lines at one place: a number, a name
MARGIN = 0.12  # beside the outermost places, for intervals that are moved aside
LIGHTEST = 0.35  # part of its colour that the first of several points on a line keeps

Lines = dict[str, list[Result]]  # by name, in order of their places


def study_figure(results: Sequence[Result], study: StudyConfig) -> Figure:
    """Left the adaptation curves of `results`, right the measure over the last episodes, with intervals.

    Each line through places has a colour, and its curves get darker along it. If places are names, the curves of each
    place have a panel of their own. 1400 x 750 pixels."""
    tasks = dict.fromkeys(shown_part(result["found"]["final"]).replace("_", "-") for result in results)
    places = {place: index for index, place in enumerate(dict.fromkeys(map(_place, results)))}
    places = {place: index if isinstance(place, str) else place for place, index in places.items()}
    lines: Lines = {_place(result, "line"): [] for result in results}
    panels: Lines = {}
    for result in sorted(results, key=lambda result: places[_place(result)]):
        lines[_place(result, "line")].append(result)
    for result in results:
        panels.setdefault(result["x"] if isinstance(result["x"], str) else "", []).append(result)
    title, ratios = f"{study.question} ({' and '.join(tasks)} tasks)", (*[3 / len(panels)] * len(panels), 2)
    figure, (*left, right) = style.new_panels(title, 1, len(ratios), (14.0, 7.5), width_ratios=ratios)
    colors, label = _colors(lines), LABELS[study.measure]
    handles: style.Handles = {}
    for axes, (name, shown) in zip(left, panels.items(), strict=True):
        for result in shown:
            curve, color = shown_curve(result, study.measure), colors[row_name(result)]
            few = len(results) <= FEW_CURVES
            handles[row_name(result)] = style.draw_curve(axes, curve, color, band=few, linewidth=2.0)
        handles |= style.draw_references(axes, shared_references(shown, study.measure))
        axes.set_title(name, fontsize=11)
        axes.sharey(left[0])
        style.episode_axis(axes, "episode", label if axes is left[0] else "")
    named = {name: handle for name, handle in _draw_finals(right, lines, places, study.measure).items() if name}
    if results[0]["x"] is not None and named:  # the names of the lines are enough
        handles = {name: handle for name, handle in handles.items() if name not in colors} | named
        if len(panels) == 1:
            left[0].set_title(f"the darker, the larger: {study.xlabel}", fontsize=11)
    style.tidy(right, study.xlabel, f"{label} over the last quarter of the episodes")
    style.legend_below(figure, handles, num_columns=5)
    return figure


def row_name(result: Result) -> str:
    """Name of a row of the study: its variant, and the world of its evaluation if there are several."""
    return f"{result['variant']}, {result['test']}" if result["test"] else result["variant"]


def _place(result: Result, key: str = "x") -> Any:
    return row_name(result) if result["x"] is None else result[key]


def _colors(lines: Lines) -> dict[str, Any]:
    """Colour of each row, lighter for the earlier rows of a line, unless places are names."""
    colors: dict[str, Any] = {}
    for index, line in enumerate(lines.values()):
        full = np.array(to_rgb(style.COLORS[index % len(style.COLORS)]))
        lightest = 1.0 if isinstance(_place(line[0]), str) else LIGHTEST
        for result, share in zip(line, np.linspace(1, lightest, len(line))[::-1], strict=True):
            colors[row_name(result)] = tuple(1 - share * (1 - full))
    return colors


def _draw_finals(axes: Axes, lines: Lines, places: Mapping[str | float, float], measure: str) -> style.Handles:
    """Draw means and intervals of each line, joined if places are numbers; returns the handles by name of the line."""
    numbers = [place for place in places if not isinstance(place, str)]
    named = next(iter(lines.values()))[0]["x"] is not None
    apart = (APART if numbers else APART_AT_NAMES) if named else 0.0
    handles: style.Handles = {}
    axes.margins(x=MARGIN)
    for index, (name, line) in enumerate(lines.items()):
        color, where = style.COLORS[index % len(style.COLORS)], [places[_place(result)] for result in line]
        finals = [found[shown_part(found)][measure] for found in (result["found"]["final"] for result in line)]
        mean, low, high = (np.array([final[key] for final in finals]) for key in ("mean", "low", "high"))
        errors = np.stack([mean - low, high - mean]).clip(min=0)  # rounding may put the mean of equal values outside
        ends = [*zip(where, low, strict=True), *zip(where, high, strict=True)]
        axes.update_datalim(ends)  # moved points do not count
        axes.autoscale_view()
        aside = apart * (index - (len(lines) - 1) / 2)
        moved = offset_copy(axes.transData, axes.get_figure(root=True), x=aside, units="points")
        axes.errorbar(where, mean, errors, color=color, linestyle="none", linewidth=1.8, capsize=5, transform=moved)
        marks: Any = {"marker": "o", "markersize": 7, "linewidth": 1.8, "linestyle": "-" if numbers else "none"}
        (handles[name],) = axes.plot(where, mean, color=color, transform=moved, **marks)
    if not numbers:
        turned: Any = {} if named else {"rotation": 30, "ha": "right"}
        axes.set_xticks(range(len(places)), list(map(str, places)), **turned)
        axes.set_xlim(-0.5, len(places) - 0.5)
        return handles
    if min(numbers) > 0 and max(numbers) >= LOG_FROM * min(numbers):
        axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(sorted(numbers)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    return handles
