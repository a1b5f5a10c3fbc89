"""The picture of a study: how its variants adapt, and what they come to in the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator, StrMethodFormatter
from matplotlib.transforms import offset_copy

from icrl.evaluation.measures import PARTS, shown_part
from icrl.plots.charts import legend_below, new_figure, tidy
from icrl.plots.plots import COLORS, reference_style

if TYPE_CHECKING:
    from icrl.config.root import StudyConfig

SIZE = (14.0, 7.5)  # inches
LABELS = {"success": "success", "returns": "return"}
FEW_CURVES = 6  # up to so many, intervals are drawn
LOG_FROM = 8.0  # the ratio of the largest to the smallest place from which on the axis is logarithmic
APART = 6.0  # points between intervals of different lines at the same place
APART_AT_NAMES = 10.0  # likewise, where places have names and lie side by side
MARGIN = 0.12  # beside the outermost places, for what is aside
LIGHTEST = 0.35  # how much of its colour the first of several points on a line keeps

Results = Sequence[Mapping[str, Any]]
Color = tuple[float, float, float]


def study_figure(results: Results, study: StudyConfig) -> Figure:
    """Left the adaptation curves of `results`, right the measure over the last episodes, with intervals; 1400 x 750
    pixels. Where variants are places on an axis, each line through them has a colour. Curves get darker along it, or,
    if places are names, those of each place have a panel of their own.
    """
    shown = dict.fromkeys(shown_part(result["found"]["final"]).replace("_", "-") for result in results)
    figure = new_figure(f"{study.question} ({' and '.join(shown)} tasks)", SIZE)
    panels = _panels(results)
    *left, right = figure.subplots(1, len(panels) + 1, width_ratios=(*[3 / len(panels)] * len(panels), 2))
    colors, label = _colors(results), LABELS[study.measure]
    curves: dict[str, Artist] = {}
    for axes, (name, part) in zip(left, panels.items(), strict=True):
        curves |= _draw_curves(axes, part, study.measure, colors, len(results) <= FEW_CURVES)
        axes.set_title(name, fontsize=11)
        axes.sharey(left[0])
        tidy(axes, "episode", label if axes is left[0] else "")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    if results[0]["x"] is None:
        _draw_points(right, results, study.measure, colors)
    elif lines := _draw_lines(right, results, study.measure):  # to name them is enough
        curves = {name: handle for name, handle in curves.items() if name not in colors} | lines
        if len(panels) == 1:
            left[0].set_title(f"the darker, the larger: {study.xlabel}", fontsize=11)
    tidy(right, study.xlabel, f"{label} over the last quarter of the episodes")
    legend_below(figure, curves, num_columns=5)
    return figure


def row_name(result: Mapping[str, Any]) -> str:
    return f"{result['variant']}, {result['test']}" if result["test"] else result["variant"]


def _panels(results: Results) -> dict[str, list[Mapping[str, Any]]]:
    """Results by the name of their place; all in one where places have none."""
    names = [result["x"] if isinstance(result["x"], str) else "" for result in results]
    return {
        name: [result for result, its in zip(results, names, strict=True) if its == name]
        for name in dict.fromkeys(names)
    }


def _places(results: Results) -> dict[Any, float]:
    """Where on the axis each `x` is: a number there, names side by side in the order in which they come."""
    return {x: index if isinstance(x, str) else x for index, x in enumerate(dict.fromkeys(one["x"] for one in results))}


def _lines(results: Results) -> dict[str, list[Mapping[str, Any]]]:
    """Results by line, in order of their places."""
    names, places = dict.fromkeys(result["line"] for result in results), _places(results)
    ordered = sorted(results, key=lambda result: places[result["x"]])
    return {name: [result for result in ordered if result["line"] == name] for name in names}


def _colors(results: Results) -> dict[str, Color]:
    if results[0]["x"] is None:
        return {row_name(one): to_rgb(COLORS[index % len(COLORS)]) for index, one in enumerate(results)}
    lightest = 1.0 if isinstance(results[0]["x"], str) else LIGHTEST
    colors: dict[str, Color] = {}
    for index, line in enumerate(_lines(results).values()):
        full = np.array(to_rgb(COLORS[index % len(COLORS)]))
        for one, share in zip(line, np.linspace(1, lightest, len(line))[::-1], strict=True):
            red, green, blue = 1 - share * (1 - full)
            colors[row_name(one)] = (red, green, blue)
    return colors


def _draw_curves(
    axes: Axes, results: Results, measure: str, colors: Mapping[str, Color], intervals: bool
) -> dict[str, Artist]:
    handles: dict[str, Artist] = {}
    for result in results:
        name, curve = row_name(result), shown_curve(result, measure)
        episodes = np.arange(1, len(curve["mean"]) + 1)
        if intervals:
            axes.fill_between(episodes, curve["low"], curve["high"], color=colors[name], alpha=0.2, linewidth=0)
        (handles[name],) = axes.plot(episodes, curve["mean"], color=colors[name], linewidth=2.0)
    for index, (name, values) in enumerate(shared_references(results, measure).items()):
        episodes = np.arange(1, len(values) + 1)
        (handles[name],) = axes.plot(episodes, values, linewidth=1.8, **reference_style(index))
    return handles


def shown_curve(result: Mapping[str, Any], measure: str) -> dict[str, list[float]]:
    """The model's adaptation on the tasks in question: `mean`, `low` and `high` of each episode."""
    return result["found"]["curves"][PARTS[shown_part(result["found"]["final"])]][measure]


def shared_references(results: Results, measure: str) -> dict[str, list[float]]:
    """The curves of random, optimum and the policies between that all results have in common, as they share a world."""
    first, *others = [result["found"]["curves"] for result in results]
    shared = {name: first[name][measure]["mean"] for name in first if "tasks" not in name}
    return {
        name: values
        for name, values in shared.items()
        if all(name in other and other[name][measure]["mean"] == values for other in others)
    }


def _draw_points(axes: Axes, results: Results, measure: str, colors: Mapping[str, Color]) -> None:
    names = [row_name(result) for result in results]
    for place, (name, result) in enumerate(zip(names, results, strict=True)):
        _draw_intervals(axes, [place], [result], measure, colors[name])
    axes.set_xticks(range(len(names)), names, rotation=30, ha="right")
    axes.set_xlim(-0.5, len(names) - 0.5)


def _draw_lines(axes: Axes, results: Results, measure: str) -> dict[str, Artist]:
    """Draw a line through the places of each line, unless these are names, which nothing is between; returns those
    that have a name."""
    handles: dict[str, Artist] = {}
    lines, places = _lines(results), _places(results)
    named = isinstance(results[0]["x"], str)
    apart = APART_AT_NAMES if named else APART
    for index, (name, line) in enumerate(lines.items()):
        color, aside = to_rgb(COLORS[index % len(COLORS)]), apart * (index - (len(lines) - 1) / 2)
        where = [places[result["x"]] for result in line]
        handle = _draw_intervals(axes, where, line, measure, color, aside, joined=not named)
        if name:
            handles[name] = handle
    if named:
        axes.set_xticks(range(len(places)), list(places))
        axes.set_xlim(-0.5, len(places) - 0.5)
    else:
        _number_axis(axes, sorted(places))
    return handles


def _number_axis(axes: Axes, places: Sequence[float]) -> None:
    """Mark the `places`, in ascending order."""
    if places[0] > 0 and places[-1] >= LOG_FROM * places[0]:
        axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(places))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))


def _draw_intervals(
    axes: Axes,
    places: Sequence[float],
    line: Results,
    measure: str,
    color: Color,
    aside: float = 0.0,
    joined: bool = True,
) -> Artist:
    """Means with their intervals, in order; so many points `aside`."""
    parts = [result["found"]["final"] for result in line]
    finals = [found[shown_part(found)][measure] for found in parts]
    mean, low, high = (np.array([final[key] for final in finals]) for key in ("mean", "low", "high"))
    errors = np.stack([mean - low, high - mean]).clip(min=0)  # rounding may put the mean of equal values outside
    axes.margins(x=MARGIN)
    axes.update_datalim([*zip(places, low, strict=True), *zip(places, high, strict=True)])  # what is aside does not
    axes.autoscale_view()
    where = offset_copy(axes.transData, axes.get_figure(root=True), x=aside, units="points")
    axes.errorbar(places, mean, errors, color=color, linestyle="none", linewidth=1.8, capsize=5, transform=where)
    style = {"color": color, "marker": "o", "markersize": 7, "linewidth": 1.8, "linestyle": "-" if joined else "none"}
    return axes.plot(places, mean, transform=where, **style)[0]
