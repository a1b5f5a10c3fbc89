"""Registration of the diagnostic."""

from icrl.evaluation.diagnostics import DIAGNOSTICS
from icrl.extensions.exploration.exploration import Exploration

DIAGNOSTICS[Exploration.name] = Exploration()
