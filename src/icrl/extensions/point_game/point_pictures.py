"""Pictures of the polyhedra game: one game in 2 or 3 dimensions as a strip and a video, and the numbers of matches.

The region above the points, in which any further point would be removed, is a staircase with the points in its corners.
In the plane it is shaded. In space its surface is drawn as seen from (1, 1, 1), from where no part hides another.
Coordinates grow during a game, so each axis is scaled to the points. K points, n coordinates.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from icrl.contracts import Json
from icrl.extensions.films.video import write_video
from icrl.extensions.point_game.fixed_players import Agent, Host
from icrl.extensions.point_game.rollout import PointGame
from icrl.extensions.point_game.rules import reduce, reposition, shift, subset_of, subsets
from icrl.plots.style import (
    COLORS,
    PALETTE,
    Frame,
    Handles,
    episode_axis,
    figure_to_array,
    legend_below,
    new_panels,
    save_figure,
    tidy,
)
from icrl.randomness import stream_seeds

Points = NDArray[np.float64]

NUM_COLUMNS, MAX_PANELS = 5, 20
FRAMES_PER_SECOND, GLIDE, HOLD = 12, 7, 9  # frames in which points move, and in which they rest
# Of the axes beyond the largest coordinate. They differ: otherwise a point with all the largest coordinates, such as
# the one that the last move removes, would be drawn where the origin is.
MARGIN = np.array([1.15, 1.25, 1.4])
POINT_COLOR, REMOVED_COLOR = PALETTE[:2]
REGION_COLOR, EDGE_COLOR = "#DCE9F3", "#7F93A3"
SURFACE_COLORS, CUT_COLORS = ("#A9C8DF", "#C6DBEA", "#E1ECF5"), ("#E6E6E6", "#EEEEEE", "#F6F6F6")  # by axis
MAX_NAMED = 12  # names of more actions do not fit the axis, which has some of their numbers then
ISOMETRIC = np.array([[-np.sqrt(0.75), -0.5], [np.sqrt(0.75), -0.5], [0.0, 1.0]])  # [3, 2]: directions of the axes


class Move(NamedTuple):
    """Effect of a move on the K points that were left, in the order of their rows."""

    before: Points  # [K, n]
    after: Points  # [K, n]
    stays: NDArray[np.bool_]  # [K]: not removed
    title: str


def write_pictures(folder: Path, game: PointGame, host: Host, agent: Agent, seed: int, name: str) -> list[Path]:
    """Play one game and write `<name>.png` and `<name>.mp4` into `folder`, without the later moves of a long game but
    the last; returns their paths. Raises `ValueError` for more than three dimensions."""
    if game.options.dimension > 3:
        raise ValueError(f"dimension={game.options.dimension}: must be 2 or 3 to be drawn")
    moves = drawn_moves(list(play_moves(game, host, agent, seed)))
    video = folder / f"{name}.mp4"
    write_video(video, _frames(moves, name), FRAMES_PER_SECOND)
    return [save_figure(folder / f"{name}.png", strip_figure(moves, name)), video]


@torch.no_grad()
def play_moves(game: PointGame, host: Host, agent: Agent, seed: int) -> Iterator[Move]:
    """Moves of one game, until it is over or truncated."""
    state, going, number = game.reset(stream_seeds(seed, 1)), True, 0
    while going:
        subset = game.ask(host, state).subset
        axis = game.answer(agent, state, subset)
        coords = subset_of(subset, game.options.dimension)
        moved = shift(state.points, coords, axis)
        stays = reduce(moved)[0, :, 0] >= 0
        moved = reposition(moved) if game.options.reposition else moved
        here = state.points[0, :, 0] >= 0
        number += 1
        named = ", ".join(str(i) for i in coords[0].nonzero()[:, 0].tolist())
        before, after = state.points[0, here].double().numpy(), moved[0, here].double().numpy()
        state, terminated, truncated = game.step(state, subset, axis)
        end = "over" if terminated else "broken off" if truncated else ""
        title = f"{number}: host {{{named}}}, agent {int(axis)}" + (f": {end}" if end else "")
        yield Move(before, after, stays[here].numpy(), title)
        going = not end


def drawn_moves(moves: list[Move]) -> list[Move]:
    """The `moves` of a game, of a long one the first and the last."""
    return moves if len(moves) < MAX_PANELS else [*moves[: MAX_PANELS - 2], moves[-1]]


def strip_figure(moves: list[Move], title: str) -> Figure:
    """Panels of the start and of the position after each move, with removed points crossed out."""
    num_columns = min(NUM_COLUMNS, len(moves) + 1)
    num_rows = -(-(len(moves) + 1) // num_columns)
    figure, panels = new_panels(title, num_rows, num_columns, (2.9 * num_columns, 3.1 * num_rows + 0.5))
    start = moves[0].before
    draw_position(panels[0], start, start[:0], _limits(start), "start")
    for axes, move in zip(panels[1:], moves, strict=False):
        draw_position(axes, move.after[move.stays], move.after[~move.stays], _limits(move.after), move.title)
    for axes in panels[len(moves) + 1 :]:
        axes.remove()
    return figure


def _frames(moves: list[Move], title: str) -> Iterator[Frame]:
    """Frames of a game: in each move points glide to their new places, then removed ones are crossed out, then gone."""
    figure, (axes,) = new_panels(title, size=(6.4, 6.4))
    nothing, limits = moves[0].before[:0], _limits(moves[0].before)

    def frame(points: Points, removed: Points, limits: Points, label: str) -> Frame:
        axes.clear()
        draw_position(axes, points, removed, limits, label)
        return figure_to_array(figure)

    yield from [frame(moves[0].before, nothing, limits, "start")] * HOLD
    figure.set_layout_engine("none")  # so that the axes stay where they are
    for move in moves:
        before, limits = limits, _limits(move.after)
        for share in np.linspace(0, 1, GLIDE):
            points = (1 - share) * move.before + share * move.after
            yield frame(points, nothing, (1 - share) * before + share * limits, move.title)
        yield from [frame(move.after[move.stays], move.after[~move.stays], limits, move.title)] * HOLD
    yield from [frame(moves[-1].after[moves[-1].stays], nothing, limits, moves[-1].title)] * HOLD


def _limits(points: Points) -> Points:
    """Upper ends of the axes, `[n]`."""
    return MARGIN[: points.shape[1]] * np.maximum(points.max(0), 1.0)


def draw_position(axes: Axes, points: Points, removed: Points, limits: Points, title: str) -> None:
    """Draw points, removed ones crossed out, on their staircase; `limits` `[n]` are the ends of the axes."""
    axes.set_title(title, fontsize=11)
    if points.shape[1] == 3:
        _draw_space(axes, points, limits)
        points, removed = (rows / limits @ ISOMETRIC for rows in (points, removed))
    else:
        _draw_plane(axes, points, limits)
    marks: dict[str, Any] = {"linestyle": "none", "markersize": 7, "clip_on": False, "in_layout": False}
    axes.plot(*points.T, marker="o", color=POINT_COLOR, markeredgecolor="white", zorder=10, **marks)
    axes.plot(*removed.T, marker="x", color=REMOVED_COLOR, markeredgewidth=2, zorder=11, **marks)


def _draw_plane(axes: Axes, points: Points, limits: Points) -> None:
    """Shade the region; its lower bound is the least second coordinate of all points up to each first coordinate."""
    order = points[np.lexsort(points.T[::-1])]
    least = np.minimum.accumulate(order[:, 1])
    steps = np.append(order[:, 0], limits[0]), np.append(least, least[-1])
    axes.fill_between(*steps, limits[1], step="post", color=REGION_COLOR, linewidth=0)
    axes.step(*steps, where="post", color=POINT_COLOR, linewidth=1.2)
    axes.vlines(order[0, 0], order[0, 1], limits[1], color=POINT_COLOR, linewidth=1.2)
    axes.set(xlim=(0, limits[0]), ylim=(0, limits[1]), xlabel="$x_0$", ylabel="$x_1$")
    axes.set_box_aspect(1)
    axes.locator_params(nbins=4, integer=True)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_space(axes: Axes, points: Points, limits: Points) -> None:
    """Draw the surface of the region, and the cut where the box ends below it.

    Planes through the points divide the box into cells. The surface is made of the sides between a cell below the
    staircase and one above it."""
    planes = [np.unique([0.0, *points[:, axis], limits[axis]]) for axis in range(3)]
    corners = np.stack(np.meshgrid(*(plane[:-1] for plane in planes), indexing="ij"), axis=-1)  # [X, Y, Z, 3]
    below = ~(corners[..., None, :] >= points).all(-1).any(-1)
    for axis in range(3):
        behind = np.insert(below, 0, True, axis)  # all cells beyond the plane through 0 are below
        before = np.insert(below, below.shape[axis], False, axis)
        first, second = (other for other in range(3) if other != axis)
        cut, surface = list[Points](), list[Points]()
        for cell in np.argwhere(behind & ~before):
            side = np.tile([plane[i] for plane, i in zip(planes, cell, strict=True)], (4, 1))  # lies in the lower plane
            side[1:3, first] = planes[first][cell[first] + 1]
            side[2:, second] = planes[second][cell[second] + 1]
            (cut if cell[axis] == below.shape[axis] else surface).append(side / limits @ ISOMETRIC)
        axes.add_collection(PolyCollection(cut, facecolors=CUT_COLORS[axis], edgecolors="face", linewidths=0.6))
        colors = {"facecolors": SURFACE_COLORS[axis], "edgecolors": EDGE_COLOR}
        axes.add_collection(PolyCollection(surface, linewidths=0.7, zorder=2, **colors))
        # Numbers along an outer edge of the box, which is 1 long, and the name of the axis beside its middle.
        ticks = MaxNLocator(nbins=3, integer=True).tick_values(0, limits[axis])
        low = 0.01 if axis == 1 else 0.0  # the edges of axes 1 and 2 begin at one point
        labels = [(tick / limits[axis], 1.12, f"{tick:g}") for tick in ticks if low <= tick / limits[axis] <= 0.95]
        for along, away, label in [*labels, (0.5, 1.32, f"$x_{axis}$")]:
            position = np.zeros(3)
            position[axis], position[(1, 0, 0)[axis]] = along, away  # the latter leads away from the box
            x, y = position @ ISOMETRIC
            axes.text(x, y, label, ha="center", va="center", fontsize=9)
    axes.set(xlim=(-1.2, 1.2), ylim=(-1.25, 1.05), aspect="equal")
    axes.set_axis_off()


def write_match_plot(path: Path, results: Json, title: str) -> Figure:
    """Write a PNG of the `results` of `rollout.measure` for at least one pair of players, all in one dimension.

    Four panels with a colour for each pair: rho with its interval, the share of games that go on after each move
    (truncated games never end), and the shares of the host's subsets and of the agent's coordinates."""
    figure, (rho_axes, survival, hosts, agents) = new_panels(title, 2, 2, (12.0, 9.0))
    dimension, width = len(next(iter(results.values()))["agent_actions"]), 0.8 / len(results)
    names = ["".join(str(int(i)) for i in subset.nonzero()[:, 0]) for subset in subsets(dimension)]
    lines: Handles = {}
    for row, (name, result) in enumerate(results.items()):
        color = COLORS[row % len(COLORS)]
        rho, finished = result["rho"], np.cumsum([0, *result["finished_lengths"]])
        rho_axes.hlines(row, rho["low"], rho["high"], color=color, linewidth=2.5)
        rho_axes.plot(rho["value"], row, "o", color=color, markersize=8, clip_on=False)
        share = 1 - finished / (finished[-1] + sum(result["unfinished_lengths"]))
        (lines[name],) = survival.step(range(len(share)), share, where="post", color=color, linewidth=2.2)
        for axes, key in ((hosts, "host_actions"), (agents, "agent_actions")):
            x, counts = np.arange(len(result[key])) - 0.4 + (row + 0.5) * width, np.array(result[key])
            axes.bar(x, counts / counts.sum(), width, color=color)
    rho_axes.set_yticks(range(len(results)), list(results))
    rho_axes.invert_yaxis()
    rho_axes.set_xlim(left=0)
    rho_axes.locator_params(axis="x", nbins=6)
    tidy(rho_axes, "rho: games finished per move", "")
    survival.set(xlim=(0, None), ylim=(0, 1.02))
    episode_axis(survival, "moves", "share of games that go on")
    for axes, label, ticks in ((hosts, "host's subset", names), (agents, "agent's coordinate", range(dimension))):
        episode_axis(axes, label, "share of moves")
        if len(ticks) <= MAX_NAMED:
            axes.set_xticks(range(len(ticks)), [*map(str, ticks)])
    legend_below(figure, lines)
    save_figure(path, figure)
    return figure
