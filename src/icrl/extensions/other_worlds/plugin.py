"""Registration of the reader."""

from icrl.evaluation.trained import OTHER_WORLDS
from icrl.extensions.other_worlds.reading import in_other_world

OTHER_WORLDS.append(in_other_world)
