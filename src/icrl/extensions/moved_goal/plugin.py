"""Registration of the diagnostic."""

from icrl.evaluation.diagnostics import DIAGNOSTICS
from icrl.extensions.moved_goal.diagnostic import MovedGoalDiagnostic

DIAGNOSTICS[MovedGoalDiagnostic.name] = MovedGoalDiagnostic()
