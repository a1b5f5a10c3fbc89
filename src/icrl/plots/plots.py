"""Pictures of results: adaptation curves, maps of the room, values of tasks in order. Figures are built without pyplot,
so nothing is global.

E episodes. Colours are those of Okabe and Ito, which colour-blind readers can tell apart.
"""

import io
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy.typing import NDArray

from icrl.plots.charts import legend_below, new_figure, tidy
from icrl.runs.files import write_atomically

Floats = NDArray[np.floating[Any]]

MAP_SIZE = (8.0, 7.2)  # inches
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
COLORS = (*PALETTE, "#000000")  # for seven lines
REFERENCE_DASHES = ((0, (6, 3)), (0, (2, 2)), (0, (6, 2, 1, 2)), (0, (1, 3)))
REFERENCE_COLOR = "#555555"
OTHER_REFERENCE_COLOR = "#A6A6A6"  # where dashes do not suffice
HELD_OUT_COLOR = "#D55E00"
NO_VALUE_COLOR = "#E4E4E4"
COLORMAP = "cividis"
FEW_EPISODES = 30  # up to so many, points are marked
FEW_TASKS = 60  # up to so many, points are marked
LARGEST_LABELLED_SIZE = 17  # in larger rooms the values would not be readable


class Curve(NamedTuple):
    """A mean with its interval, `[E]` each."""

    name: str
    mean: Floats
    low: Floats
    high: Floats


class Reference(NamedTuple):
    """What curves are to be compared with: one number, or a value for each episode `[E]`."""

    name: str
    value: float | Floats


class Panel(NamedTuple):
    """One pair of axes."""

    ylabel: str
    curves: Sequence[Curve]
    references: Sequence[Reference] = ()


def adaptation_figure(panels: Sequence[Panel], *, title: str, xlabel: str = "episode") -> Figure:
    """How policies improve over episodes 1 .. E, or what `xlabel` calls them: a panel for each measure, side by side,
    one legend for all; 1200 x 700 pixels."""
    figure = new_figure(title)
    lines: dict[str, Artist] = {}
    for axes, panel in zip(np.ravel(figure.subplots(1, len(panels))), panels, strict=True):
        lines |= _draw_panel(axes, panel, xlabel)
    legend_below(figure, lines)
    return figure


def goal_map_figure(
    size: int,
    values: Mapping[int, float],
    *,
    held_out: Collection[int],
    development: Collection[int] = (),
    start: int | None,
    title: str,
    vmin: float = 0.0,
    vmax: float = 1.0,
) -> Figure:
    """The room with a value, such as the final success, on each goal cell (row * size + column); cells without one
    are grey. `held_out` cells are outlined, those for `development` with dashes; `start` is the cell all episodes start
    on, None where starts vary. 800 x 720 pixels."""
    figure = new_figure(title, MAP_SIZE)
    axes = figure.add_subplot()
    cells = np.array([values.get(cell, np.nan) for cell in range(size * size)])
    edges, labelled = np.arange(size + 1), size <= LARGEST_LABELLED_SIZE
    mesh = axes.pcolormesh(
        edges,
        edges,
        np.ma.masked_invalid(cells).reshape(size, size),
        cmap=colormaps[COLORMAP].with_extremes(bad=NO_VALUE_COLOR),
        norm=Normalize(vmin, vmax),
        edgecolors="white" if labelled else "none",
    )
    if labelled:
        _print_values(axes, size, cells, mesh.to_rgba(cells))
    legend_below(figure, _mark_cells(axes, size, held_out, development, start))
    axes.set(xlim=(0, size), ylim=(size, 0), aspect="equal", xlabel="column", ylabel="row")
    ticks = np.arange(0, size, 1 if labelled else 8)
    axes.set_xticks(ticks + 0.5, [str(tick) for tick in ticks])
    axes.set_yticks(ticks + 0.5, [str(tick) for tick in ticks])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    figure.colorbar(mesh, ax=axes, shrink=0.8)
    return figure


def ordered_figure(parts: Mapping[str, Floats], *, title: str) -> Figure:
    """A value between 0 and 1, such as the final success, for each task of each part, from the largest to the smallest;
    parts without values are left out. 800 x 720 pixels."""
    figure = new_figure(title, MAP_SIZE)
    axes = figure.add_subplot()
    lines: dict[str, Artist] = {}
    for (name, values), color in zip(parts.items(), PALETTE, strict=False):
        if len(values):
            share = (np.arange(len(values)) + 0.5) / len(values)  # so that parts of different sizes fill one axis
            marker = "o" if len(values) <= FEW_TASKS else None
            (line,) = axes.plot(share, np.sort(values)[::-1], color=color, linewidth=2.2, marker=marker, markersize=5)
            lines[f"{name} ({len(values)})"] = line
    axes.set(xlim=(0, 1), ylim=(-0.02, 1.02))
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    tidy(axes, "tasks, from best to worst", "success")
    legend_below(figure, lines)
    return figure


def figure_to_array(figure: Figure) -> NDArray[np.uint8]:
    """The figure's pixels, `[H, W, 3]`, as TensorBoard's `add_image(..., dataformats="HWC")` takes them."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba(), dtype=np.uint8)[..., :3].copy()


def save_figure(path: Path, figure: Figure) -> None:
    """Write the figure as PNG: the whole picture or nothing."""
    content = io.BytesIO()
    figure.savefig(content, format="png")
    write_atomically(path, content.getvalue())


def reference_style(index: int) -> dict[str, Any]:
    """Dashes and colour of the line of reference number `index`; eight are different."""
    again, kind = divmod(index, len(REFERENCE_DASHES))
    return {"linestyle": REFERENCE_DASHES[kind], "color": (REFERENCE_COLOR, OTHER_REFERENCE_COLOR)[again % 2]}


def _draw_panel(axes: Axes, panel: Panel, xlabel: str) -> dict[str, Artist]:
    """Draw curves and references; returns the lines by name."""
    lines: dict[str, Artist] = {}
    num_episodes = max(len(curve.mean) for curve in panel.curves)
    for index, curve in enumerate(panel.curves):
        color = COLORS[index % len(COLORS)]
        episodes = np.arange(1, len(curve.mean) + 1)
        axes.fill_between(episodes, curve.low, curve.high, color=color, alpha=0.2, linewidth=0)
        marker = "o" if num_episodes <= FEW_EPISODES else None
        (lines[curve.name],) = axes.plot(episodes, curve.mean, color=color, linewidth=2.2, marker=marker, markersize=5)
    for index, reference in enumerate(panel.references):
        values = np.broadcast_to(reference.value, (num_episodes,))
        episodes = np.arange(1, num_episodes + 1)
        (lines[reference.name],) = axes.plot(episodes, values, linewidth=1.8, **reference_style(index))
    tidy(axes, xlabel, panel.ylabel)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    axes.set_xlim(0.5, num_episodes + 0.5)
    return lines


def _print_values(axes: Axes, size: int, cells: Floats, colors: Floats) -> None:
    """Write each cell's value, `[S]`, in black or white, whichever stands out from the cell's color `[S, 4]`."""
    brightness = colors[:, :3] @ (0.299, 0.587, 0.114)
    for cell in np.flatnonzero(~np.isnan(cells)):
        axes.text(
            cell % size + 0.5,
            cell // size + 0.5,
            f"{cells[cell]:.2f}",
            ha="center",
            va="center",
            fontsize=min(13, 110 / size),
            color="white" if brightness[cell] < 0.5 else "black",
        )


def _mark_cells(
    axes: Axes, size: int, held_out: Collection[int], development: Collection[int], start: int | None
) -> dict[str, Artist]:
    """Outline the held-out cells and those for development, and mark the start; returns what a legend is to explain."""
    handles: dict[str, Artist] = {}
    inset = 0.05
    outlined = [("held-out tasks", "-", cell) for cell in held_out]
    for name, style, cell in [*outlined, *(("development tasks", "--", cell) for cell in development)]:
        handles[name] = axes.add_patch(
            Rectangle(
                (cell % size + inset, cell // size + inset),
                1 - 2 * inset,
                1 - 2 * inset,
                fill=False,
                edgecolor=HELD_OUT_COLOR,
                linestyle=style,
                linewidth=max(1.2, min(3.0, 27 / size)),
            )
        )
    if start is not None:
        (handles["start"],) = axes.plot(
            start % size + 0.5, start // size + 0.5, "o", color="#333333", markersize=min(14, 130 / size)
        )
    return handles
