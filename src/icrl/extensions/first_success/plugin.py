"""Registration of the diagnostic."""

from icrl.evaluation.diagnostics import DIAGNOSTICS
from icrl.extensions.first_success.diagnostic import FirstSuccess

DIAGNOSTICS[FirstSuccess.name] = FirstSuccess()
