"""Picture of a room with the mean success of each goal cell."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from icrl.envs.core import TensorEnv
from icrl.plots import style
from icrl.plots.figures import SIZE, Part

NO_VALUE_COLOR = "#E4E4E4"
LARGEST_LABELLED_SIZE = 17  # values are not readable in larger rooms
INSET = 0.05  # of an outline in its cell


def map_of_tasks(env: TensorEnv, named: Mapping[str, Part], title: str) -> Figure | None:
    """Map of the tasks of held-out, development and training tasks with their values; None if they have no cells. A
    cell shows the mean over its tasks, and is outlined if all of them are held out, or all are development tasks."""
    cells = [part.tolist() for tasks, _ in named.values() if (part := env.goal_cell(tasks)) is not None]
    if not cells:
        return None
    values: dict[int, list[float]] = {}
    for part, (_, success) in zip(cells, named.values(), strict=True):
        for cell, value in zip(part, success, strict=False):
            values.setdefault(cell, []).append(value)
    in_held_out, in_development, in_train = map(set, cells)
    several = any(len(of_cell) > 1 for of_cell in values.values())
    outlined = {
        "held-out tasks": in_held_out - in_train - in_development,
        "development tasks": in_development - in_held_out - in_train,
    }
    means = {cell: float(np.mean(of_cell)) for cell, of_cell in values.items()}
    return _map(env, means, outlined, title + (f", mean by {env.goal_cell_name}" if several else ""))


def _map(env: TensorEnv, means: Mapping[int, float], outlined: Mapping[str, set[int]], title: str) -> Figure:
    """Room with the mean of each goal cell that has one, outlines (those of the second kind dashed) and the start."""
    figure, (axes,) = style.new_panels(title, size=SIZE)
    size = env.spec.width
    cells, labelled = np.array([means.get(cell, np.nan) for cell in range(size**2)]), size <= LARGEST_LABELLED_SIZE
    mesh = axes.pcolormesh(
        np.ma.masked_invalid(cells).reshape(size, size),
        cmap=colormaps[style.COLORMAP].with_extremes(bad=NO_VALUE_COLOR),
        vmin=0.0,
        vmax=1.0,
        edgecolors="white" if labelled else "none",
    )
    if labelled:
        brightness = mesh.to_rgba(cells)[:, :3] @ (0.299, 0.587, 0.114)
        font = {"ha": "center", "va": "center", "fontsize": min(13, 110 / size)}
        for cell, mean in means.items():
            color = "white" if brightness[cell] < 0.5 else "black"
            axes.text(cell % size + 0.5, cell // size + 0.5, f"{mean:.2f}", color=color, **font)
    handles: style.Handles = {}
    edge: dict[str, Any] = {"edgecolor": style.HELD_OUT_COLOR, "linewidth": max(1.2, min(3.0, 27 / size))}
    for (name, kind), dashes in zip(outlined.items(), ("-", "--"), strict=True):
        for cell in kind:
            corner, side = (cell % size + INSET, cell // size + INSET), 1 - 2 * INSET
            handles[name] = axes.add_patch(Rectangle(corner, side, side, fill=False, linestyle=dashes, **edge))
    if len(env.starts) == 1:
        start = int(env.cell(env.observe(env.starts), torch.zeros(1)))
        place = start % size + 0.5, start // size + 0.5
        (handles["start"],) = axes.plot(*place, "o", color="#333333", markersize=min(14, 130 / size))
    style.legend_below(figure, handles)
    axes.set(xlim=(0, size), ylim=(size, 0), aspect="equal", xlabel="column", ylabel="row")
    ticks = np.arange(0, size, 1 if labelled else 8)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_ticks(ticks + 0.5, [str(tick) for tick in ticks])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    figure.colorbar(mesh, ax=axes, shrink=0.8)
    return figure
