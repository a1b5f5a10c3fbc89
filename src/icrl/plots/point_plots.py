"""A picture of what `matches.measure` gave: who wins how fast, how long games take, and what the players choose."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from icrl.contracts import Json
from icrl.plots.charts import legend_below, new_figure, tidy
from icrl.plots.plots import PALETTE, save_figure
from icrl.point_game.rules import subsets

SIZE = (12.0, 9.0)  # inches
MAX_NAMED = 11  # subsets: of more the numbers alone fit the axis


def write_match_plot(path: Path, results: Json, title: str) -> None:
    """Write a PNG of `results`, at least one pair of players, all in one dimension."""
    save_figure(path, match_figure(results, title))


def match_figure(results: Json, title: str) -> Figure:
    """Four panels: rho with its interval, the share of games that go on after each move, and the shares of the host's
    subsets and of the agent's coordinates. A colour for each pair of players; broken-off games go on for ever."""
    figure = new_figure(title, SIZE)
    panels = np.ravel(figure.subplots(2, 2))
    colors = {name: PALETTE[index % len(PALETTE)] for index, name in enumerate(results)}
    _draw_rho(panels[0], results, colors)
    lines = _draw_survival(panels[1], results, colors)
    first = next(iter(results.values()))
    named = ["".join(str(int(i)) for i in subset.nonzero()[:, 0]) for subset in subsets(len(first["agent_actions"]))]
    named = named if len(named) <= MAX_NAMED else [str(number) for number in range(len(named))]
    _draw_shares(panels[2], {name: result["host_actions"] for name, result in results.items()}, colors, named)
    tidy(panels[2], "host's subset", "share of moves")
    coordinates = [str(number) for number in range(len(first["agent_actions"]))]
    _draw_shares(panels[3], {name: result["agent_actions"] for name, result in results.items()}, colors, coordinates)
    tidy(panels[3], "agent's coordinate", "share of moves")
    legend_below(figure, lines)
    return figure


def _draw_rho(axes: Axes, results: Json, colors: Mapping[str, str]) -> None:
    for row, (name, result) in enumerate(results.items()):
        rho = result["rho"]
        axes.hlines(row, rho["low"], rho["high"], color=colors[name], linewidth=2.5)
        axes.plot(rho["value"], row, "o", color=colors[name], markersize=8, clip_on=False)
    axes.set_yticks(range(len(results)), list(results))
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    tidy(axes, "rho: games finished per move", "")


def _draw_survival(axes: Axes, results: Json, colors: Mapping[str, str]) -> dict[str, Artist]:
    """Returns the lines by name."""
    lines: dict[str, Artist] = {}
    for name, result in results.items():
        finished = np.cumsum([0, *result["finished_lengths"]])
        share = 1 - finished / (finished[-1] + sum(result["unfinished_lengths"]))
        (lines[name],) = axes.step(range(len(share)), share, where="post", color=colors[name], linewidth=2.2)
    axes.set_ylim(0, 1.02)
    axes.set_xlim(left=0)
    tidy(axes, "moves", "share of games that go on")
    return lines


def _draw_shares(
    axes: Axes, counts: Mapping[str, Sequence[int]], colors: Mapping[str, str], labels: Sequence[str]
) -> None:
    width = 0.8 / len(counts)
    for index, (name, numbers) in enumerate(counts.items()):
        places = np.arange(len(labels)) - 0.4 + (index + 0.5) * width
        axes.bar(places, np.array(numbers) / sum(numbers), width, color=colors[name])
    axes.set_xticks(range(len(labels)), labels)
