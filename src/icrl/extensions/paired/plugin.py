"""Registration of the diagnostic."""

from icrl.evaluation.diagnostics import DIAGNOSTICS
from icrl.extensions.paired.differences import Differences

DIAGNOSTICS[Differences.name] = Differences()
