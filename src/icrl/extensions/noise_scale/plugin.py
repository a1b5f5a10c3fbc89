"""Registration of the estimator."""

from icrl.extensions.noise_scale.estimator import make_noise_scale
from icrl.training.fit import NOISE_SCALES

NOISE_SCALES.append(make_noise_scale)
