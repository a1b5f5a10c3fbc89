"""Registration of the graphs."""

from icrl.extensions.graphs.captured import Captured
from icrl.runs.device import REPEATED

REPEATED.append(Captured)
