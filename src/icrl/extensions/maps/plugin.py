"""Registration of the maps of tasks."""

from icrl.evaluation.diagnostics import MAPS

MAPS.append("icrl.extensions.maps.goals")
