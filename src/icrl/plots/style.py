"""Common style of pictures, which are written whole or not at all; no pyplot. E episodes.

The colours are those of Okabe and Ito, which colour-blind readers can tell apart.
"""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray
from PIL import Image

from icrl.runs.files import write_atomically

Floats = NDArray[np.floating[Any]]
Curve = Mapping[str, Sequence[float]]  # `mean`, `low` and `high` of each episode, `[E]` each
Handles = dict[str, Artist]  # entries of a legend, by name
Frame = NDArray[np.uint8]  # [H, W, 3]

DPI = 100
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
COLORS = (*PALETTE, "#000000")  # for seven lines
REFERENCE_DASHES = ((0, (6, 3)), (0, (2, 2)), (0, (6, 2, 1, 2)), (0, (1, 3)))
REFERENCE_COLORS = ("#555555", "#A6A6A6")  # the second where dashes do not suffice
BASELINE: dict[str, Any] = {"linestyle": REFERENCE_DASHES[0], "color": REFERENCE_COLORS[0]}  # of a single reference
HELD_OUT_COLOR = PALETTE[1]
COLORMAP = "cividis"
FEW_POINTS = 30  # a curve of at most this many points has markers


def new_panels(
    title: str, rows: int = 1, columns: int = 1, size: tuple[float, float] = (12.0, 7.0), **given: Any
) -> tuple[Figure, list[Axes]]:
    """Figure of `size` inches, 100 pixels each, that lays out its panels itself, and those panels, row by row."""
    figure = Figure(figsize=size, dpi=DPI, layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12))
    figure.suptitle(title, fontsize=15)
    return figure, [*figure.subplots(rows, columns, squeeze=False, **given).flat]


def tidy(axes: Axes, xlabel: str, ylabel: str) -> None:
    """Label the axes, draw a light grid behind the data, and remove the unused sides of the frame."""
    axes.set_xlabel(xlabel, fontsize=13)
    axes.set_ylabel(ylabel, fontsize=13)
    axes.tick_params(labelsize=11)
    axes.grid(color="#E0E0E0", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def episode_axis(axes: Axes, xlabel: str, ylabel: str) -> None:
    """Label axes whose x counts episodes."""
    tidy(axes, xlabel, ylabel)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))


def scaled_axis(axes: Axes, ends: tuple[float, float], label: str) -> None:
    """Draw a second y axis on the right, which has 0 and 1 at the values `ends` of the first."""
    low, high = ends

    def scaled(values: ArrayLike) -> ArrayLike:
        return (np.asarray(values) - low) / (high - low)

    def plain(values: ArrayLike) -> ArrayLike:
        return low + np.asarray(values) * (high - low)

    second = axes.secondary_yaxis("right", functions=(scaled, plain))
    second.set_ylabel(label, fontsize=13)
    second.tick_params(labelsize=11)


def legend_below(figure: Figure, handles: Mapping[str, Artist], num_columns: int = 3) -> None:
    """Draw one legend of all `handles` below the panels."""
    place: Any = {"loc": "outside lower center", "fontsize": 12, "frameon": False}
    figure.legend(list(handles.values()), list(handles), ncols=num_columns, **place)


def draw_curve(axes: Axes, curve: Curve, color: Any, *, band: bool = True, **style: Any) -> Artist:
    """Draw a mean over episodes 1 .. E, with its interval as a band; returns the line."""
    episodes = np.arange(1, len(curve["mean"]) + 1)
    if band:
        axes.fill_between(episodes, curve["low"], curve["high"], color=color, alpha=0.2, linewidth=0)
    return axes.plot(episodes, curve["mean"], color=color, markersize=5, **style)[0]


def draw_references(axes: Axes, references: Mapping[str, ArrayLike]) -> Handles:
    """Draw baselines over episodes 1 .. E, up to eight of which look different; returns the lines by name."""
    lines: Handles = {}
    for index, (name, values) in enumerate(references.items()):
        again, kind = divmod(index, len(REFERENCE_DASHES))
        style: Any = {"linestyle": REFERENCE_DASHES[kind], "color": REFERENCE_COLORS[again % 2]}
        (lines[name],) = axes.plot(np.arange(1, np.size(values) + 1), values, linewidth=1.8, **style)
    return lines


def figure_to_array(figure: Figure) -> Frame:
    """Pixels of the figure, as TensorBoard's `add_image(..., dataformats="HWC")` takes them. Drawing takes far longer
    than writing, so a figure that is shown in two places is drawn once."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba(), dtype=np.uint8)[..., :3].copy()


def save_figure(path: Path, figure: Figure) -> Path:
    """Write the figure as a PNG file; returns its path."""
    return save_picture(path, figure_to_array(figure))


def save_picture(path: Path, pixels: Frame) -> Path:
    """Write pixels as a PNG file; returns its path."""
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, format="png")
    write_atomically(path, content.getvalue())
    return path
