"""Registration of the measure of `evals.uncertainty`."""

from icrl.evaluation.trained import UNCERTAINTY
from icrl.extensions.calibration.reliability import during_training

UNCERTAINTY["calibration"] = during_training
