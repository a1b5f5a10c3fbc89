"""Registration of the closer looks, and of what they need of other options."""

from collections.abc import Iterator

from icrl.app.root import Config, rule
from icrl.extensions.inspection.inspector import DetailedInspector
from icrl.runs.metrics import INSPECTORS

INSPECTORS.append(DetailedInspector())


@rule
def conflicts(config: Config) -> Iterator[str]:
    """Details are shown with points of curves, of agents that act without their past."""
    curves = config.summaries
    if curves.details and not (curves.num_summaries or curves.summary_interval):
        yield "$summaries.details shows nothing with $summaries.num_summaries and $summaries.summary_interval"
    if curves.details and config.source.in_context:
        acts = "starts agents without their past, but $source.name acts on its past alone"
        yield f"$summaries.details {acts}: give summaries.details=false"
