"""Registration of the estimator."""

from icrl.extensions.noise_scale.estimator import GradientNoiseScale
from icrl.training.updates import NOISE_SCALES

NOISE_SCALES.append(GradientNoiseScale)
