"""Success on each task: a map of the room if the tasks have cells, else a curve over the sorted tasks.

S cells, N tasks.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import PercentFormatter
from torch import Tensor

from icrl.envs.core import TensorEnv
from icrl.plots.style import COLORMAP, HELD_OUT_COLOR, PALETTE, Floats, Handles, legend_below, new_figure, tidy

SIZE = (8.0, 7.2)  # inches
NO_VALUE_COLOR = "#E4E4E4"
FEW_TASKS = 60  # a curve of at most this many tasks has markers
LARGEST_LABELLED_SIZE = 17  # values are not readable in larger rooms
INSET = 0.05  # of an outline in its cell


def success_figure(
    env: TensorEnv,
    train: tuple[Tensor, Sequence[float]],
    held_out: tuple[Tensor, Sequence[float]],
    development: tuple[Tensor, Sequence[float]],
    *,
    title: str,
) -> Figure:
    """Success on training, held-out and development tasks, 800 x 720 pixels.

    Each part is its tasks `[N, task_dim]` and their success, which is empty if only the tasks are known. On a map, a
    cell shows the mean over its tasks. It is outlined if all of them are held out, or all are development tasks."""
    named = {"held-out tasks": held_out, "training tasks": train, "development tasks": development}
    values: dict[int, list[float]] = {}
    cells_of: list[set[int]] = []
    for tasks, success in named.values():
        if (cells := env.goal_cell(tasks)) is None:
            return _sorted_figure({name: np.array(part) for name, (_, part) in named.items()}, title)
        cells_of.append(set(cells.tolist()))
        for cell, value in zip(cells.tolist(), success, strict=False):
            values.setdefault(cell, []).append(value)
    if any(len(of_cell) > 1 for of_cell in values.values()):
        title = f"{title}, mean by {env.goal_cell_name}"
    in_held_out, in_train, in_development = cells_of
    outlined = {
        "held-out tasks": in_held_out - in_train - in_development,
        "development tasks": in_development - in_held_out - in_train,
    }
    start = env.cell(env.observe(env.starts), torch.zeros(1)) if len(env.starts) == 1 else None
    means = {cell: float(np.mean(of_cell)) for cell, of_cell in values.items()}
    return _map_figure(env.spec.width, means, outlined, None if start is None else int(start), title)


def _sorted_figure(parts: Mapping[str, Floats], title: str) -> Figure:
    """Success on the tasks of each part, from the largest to the smallest; parts without values are left out."""
    figure = new_figure(title, SIZE)
    axes = figure.add_subplot()
    lines: Handles = {}
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


def _map_figure(
    size: int, values: Mapping[int, float], outlined: Mapping[str, set[int]], start: int | None, title: str
) -> Figure:
    """Room with the value of each goal cell (row * size + column) that has one, and the cell where episodes start."""
    figure = new_figure(title, SIZE)
    axes = figure.add_subplot()
    cells, labelled = np.array([values.get(cell, np.nan) for cell in range(size * size)]), size <= LARGEST_LABELLED_SIZE
    mesh = axes.pcolormesh(
        np.arange(size + 1),
        np.arange(size + 1),
        np.ma.masked_invalid(cells).reshape(size, size),
        cmap=colormaps[COLORMAP].with_extremes(bad=NO_VALUE_COLOR),
        vmin=0.0,
        vmax=1.0,
        edgecolors="white" if labelled else "none",
    )
    if labelled:
        brightness = mesh.to_rgba(cells)[:, :3] @ (0.299, 0.587, 0.114)
        style = {"ha": "center", "va": "center", "fontsize": min(13, 110 / size)}
        for cell in np.flatnonzero(~np.isnan(cells)):
            color, place = "white" if brightness[cell] < 0.5 else "black", (cell % size + 0.5, cell // size + 0.5)
            axes.text(*place, f"{cells[cell]:.2f}", color=color, **style)
    legend_below(figure, _mark_cells(axes, size, outlined, start))
    axes.set(xlim=(0, size), ylim=(size, 0), aspect="equal", xlabel="column", ylabel="row")
    ticks = np.arange(0, size, 1 if labelled else 8)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks(ticks + 0.5, [str(tick) for tick in ticks])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    figure.colorbar(mesh, ax=axes, shrink=0.8)
    return figure


def _mark_cells(axes: Axes, size: int, outlined: Mapping[str, set[int]], start: int | None) -> Handles:
    """Outline cells, the second kind with dashes, and mark the start; returns the entries of the legend."""
    handles: Handles = {}
    for (name, cells), dashes in zip(outlined.items(), ("-", "--"), strict=True):
        width = max(1.2, min(3.0, 27 / size))
        style = {"fill": False, "edgecolor": HELD_OUT_COLOR, "linestyle": dashes, "linewidth": width}
        for cell in cells:
            corner = cell % size + INSET, cell // size + INSET
            handles[name] = axes.add_patch(Rectangle(corner, 1 - 2 * INSET, 1 - 2 * INSET, **style))
    if start is not None:
        place = start % size + 0.5, start // size + 0.5
        (handles["start"],) = axes.plot(*place, "o", color="#333333", markersize=min(14, 130 / size))
    return handles
