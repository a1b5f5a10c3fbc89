"""Picture of the first success."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from icrl.evaluation.report import Curves
from icrl.extensions.first_success.diagnostic import at_risk
from icrl.plots.figures import adaptation_figure, panel_of


def first_success_figure(curves: Mapping[str, Curves], references: Sequence[str]) -> Figure:
    """Left how soon policies find the goal, as long as enough streams still look for it; right what they keep of it."""
    labels = {
        "first_success": ("first success, where none came before", "episode"),
        "after_first_success": ("success", "episodes after the first success"),
    }
    panels = []
    for measure, (ylabel, xlabel) in labels.items():
        shown = {name: at_risk(of_policy[measure]) for name, of_policy in curves.items() if measure in of_policy}
        if shown.keys() - {*references}:  # a model that never succeeds keeps nothing
            panel = panel_of(ylabel, shown, [name for name in references if name in shown])
            panels.append(panel._replace(xlabel=xlabel))
    return adaptation_figure(panels, title="Finding and keeping")
