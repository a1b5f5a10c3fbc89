"""Registration of the films."""

from icrl.evaluation.diagnostics import FILMING

FILMING.append("icrl.extensions.films.films")
