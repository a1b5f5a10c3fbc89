"""Gaussian policies on bounded action spaces."""

import math

import torch
from torch import Tensor

_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


def clipped_gaussian_log_prob(
    mean: Tensor, log_std: Tensor, unit_action: Tensor, at_low: Tensor, at_high: Tensor
) -> Tensor:
    """Log-likelihood of an action that was drawn from a Gaussian and then clipped, summed over its k numbers, `[...]`
    (Fujita and Maeda, "Clipped action policy gradient", 2018, arXiv 1802.07564, equation 8):

        log pi(a|s) = log Phi(z)          if a is the lower bound,         z = (a - mean) / std
                      log Phi(-z)         if a is the upper bound,         Phi: standard normal distribution function
                      log phi(z) / std    else                             phi: standard normal density

    The action alone determines the likelihood, so what was drawn before the clip need not be kept, and the gradient has
    a smaller variance than that of the unclipped density. Arguments are `[..., k]`; `at_low` and `at_high` tell where
    `unit_action` is a bound."""
    z = (unit_action - mean) * (-log_std).exp()
    inside = -0.5 * z.square() - log_std - _HALF_LOG_TWO_PI
    at_bound = torch.special.log_ndtr(torch.where(at_high, -z, z))
    return torch.where(at_low | at_high, at_bound, inside).sum(-1)


def gaussian_entropy(log_std: Tensor) -> Tensor:
    """Entropy of a Gaussian with independent numbers, `[..., k] -> [...]`: sum of log std + log(2 pi e) / 2."""
    return (log_std + (_HALF_LOG_TWO_PI + 0.5)).sum(-1)
