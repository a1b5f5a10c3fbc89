"""Registration of the films."""

from icrl.evaluation.diagnostics import FILMING
from icrl.extensions.films.films import Films

FILMING.append(Films())
