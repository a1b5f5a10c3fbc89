"""Registration of the layer."""

from icrl.extensions.induction.layer import Induction
from icrl.nn.gpt import INDUCTION

INDUCTION.append(Induction)
