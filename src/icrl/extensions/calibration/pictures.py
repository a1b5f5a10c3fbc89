"""Reliability diagram."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from icrl.plots import style


def reliability_figure(bins: Sequence[Mapping[str, float]], title: str) -> Figure:
    """Reliability diagram: how often the most probable action is right, by its probability, and how many steps have
    such a probability."""
    figure, (above, below) = style.new_panels(title, 2, 1, height_ratios=(3, 1), sharex=True)
    confidence, accuracy, share = ([one[key] for one in bins] for key in ("confidence", "accuracy", "share"))
    lines: style.Handles = {}
    (lines["calibrated"],) = above.plot([0, 1], [0, 1], **style.BASELINE)
    (lines["model"],) = above.plot(confidence, accuracy, "o-", color=style.PALETTE[0], linewidth=2.2, markersize=7)
    below.bar(confidence, share, width=0.03, color=style.PALETTE[0])
    above.set(xlim=(0, 1.02), ylim=(-0.02, 1.02))
    style.tidy(above, "", "right")
    style.tidy(below, "probability of the most probable action", "steps")
    below.yaxis.set_major_formatter(PercentFormatter(1.0))
    style.legend_below(figure, lines)
    return figure
