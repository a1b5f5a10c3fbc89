"""Registration of the head."""

from icrl.extensions.action_vectors.vectors import NAME, ActionVectors
from icrl.nn.heads import HEADS

HEADS[NAME] = ActionVectors
