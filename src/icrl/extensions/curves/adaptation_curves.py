"""Adaptation curves of several evaluations, and the references that these share."""

from collections.abc import Mapping, Sequence
from typing import Any

from icrl.evaluation.protocol import PARTS, shown_part

Result = Mapping[str, Any]  # numbers of one run as `found`, or of several


def shown_curve(result: Result, measure: str) -> Mapping[str, list[float]]:
    """Adaptation of the model on the tasks that the evaluation is about."""
    return result["found"]["curves"][PARTS[shown_part(result["found"]["final"])]][measure]


def shared_references(results: Sequence[Result], measure: str) -> dict[str, list[float]]:
    """Curves of random play, the optimum and the policies between, if all results have the same, as in one world."""
    models = PARTS.values()
    curves = [
        {
            name: curve[measure]["mean"]
            for name, curve in result["found"]["curves"].items()
            if name not in models and "training tasks" not in name
        }
        for result in results
    ]
    return {name: mean for name, mean in curves[0].items() if all(other.get(name) == mean for other in curves)}
