"""Registration of the reader of exported models."""

from icrl.evaluation.kinds import READERS
from icrl.extensions.exported.folder import WEIGHTS, read_exported

READERS[WEIGHTS] = read_exported
