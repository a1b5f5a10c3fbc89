"""Registration of the films."""

from icrl.extensions.films.films import Films
from icrl.plots.filming import FILMING

FILMING.append(Films())
