"""How charts of progress look: figures with a title, axes with a light grid, one legend below all panels."""

from collections.abc import Mapping

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

DPI = 100
CURVES_SIZE = (12.0, 7.0)  # inches: 1200 x 700 pixels


def new_figure(title: str, size: tuple[float, float] = CURVES_SIZE) -> Figure:
    """An empty figure of `size` inches that lays out its panels itself."""
    figure = Figure(figsize=size, dpi=DPI, layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12))
    figure.suptitle(title, fontsize=15)
    return figure


def tidy(axes: Axes, xlabel: str, ylabel: str) -> None:
    """Label the axes, put a light grid behind what is drawn, and drop the frame's unused sides."""
    axes.set_xlabel(xlabel, fontsize=13)
    axes.set_ylabel(ylabel, fontsize=13)
    axes.tick_params(labelsize=11)
    axes.grid(color="#E0E0E0", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def legend_below(figure: Figure, handles: Mapping[str, Artist], num_columns: int = 3) -> None:
    """Explain `handles`, each under its name, below all panels."""
    figure.legend(
        list(handles.values()), list(handles), loc="outside lower center", ncols=num_columns, fontsize=12, frameon=False
    )
