"""Registration of the probes."""

from icrl.evaluation.diagnostics import PROBES
from icrl.extensions.probes.probes import probes_of

PROBES.append(probes_of)
