"""Picture of a goal that moved."""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from icrl.plots.figures import adaptation_figure, panel_of


def moved_goal_figure(moved: Mapping[str, Any], before: int) -> Figure:
    """Success, and visits of the old goal before the new one, of the model and of references that forget."""
    labels = {"success": "success", "other_goal_first": "visits the first goal before the second"}
    references = [name for name in moved if name != "model"]
    panels = [
        panel_of(label, {name: found["curves"][measure] for name, found in moved.items()}, references)
        for measure, label in labels.items()
    ]
    return adaptation_figure(panels, title=f"The goal moves after episode {before}", change_after=before)
