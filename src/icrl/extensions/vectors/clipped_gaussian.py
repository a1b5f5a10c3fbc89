"""Gaussian policy on a Box, whose samples are clipped to the bounds."""

import math

import torch
from gymnasium.spaces import Box
from torch import Tensor

from icrl.nn.heads import Head
from icrl.randomness import normal

_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


class ClippedGaussian(Head):
    """Distribution of actions `[..., *shape]` of a Box with k numbers, given k means and k logarithms of standard
    deviations `[..., 2 k]`. Both are in units of half the distance between two finite bounds, means from their middle.

    With z = (a - mean) / deviation, the likelihood of a number that was drawn and then clipped is (Fujita and Maeda,
    "Clipped action policy gradient", 2018, arXiv 1802.07564)

        log pi(a) = log Phi(z)     at the lower bound,     Phi: distribution function of the standard normal
                    log Phi(-z)    at the upper bound
                    log N(a; mean, deviation^2)    between them

    It is a function of the clipped action alone, so nothing else has to be recorded, and its gradient has a smaller
    variance than that of the density before the clip."""

    low: Tensor
    high: Tensor
    unit: Tensor
    middle: Tensor

    def __init__(self, space: Box) -> None:
        super().__init__()
        self.shape = space.shape
        self.num_noise = math.prod(space.shape)
        self.num_parameters = 2 * self.num_noise
        low, high = (torch.as_tensor(bound).float().flatten() for bound in (space.low, space.high))
        bounded = (half := (high - low) / 2).isfinite()
        parts = {
            "low": low,
            "high": high,
            "unit": half.where(bounded & (half > 0), 1.0),
            "middle": (low + half).where(bounded, 0.0),
        }
        for name, value in parts.items():  # they are part of the space, not of a checkpoint
            self.register_buffer(name, value, persistent=False)

    def log_prob(self, parameters: Tensor, action: Tensor) -> Tensor:
        """Sum of the k log-likelihoods, in the units above, `[...]`."""
        (mean, log_std), flat = parameters.chunk(2, -1), action.flatten(-len(self.shape))
        at_low, at_high = flat <= self.low, flat >= self.high
        z = ((flat - self.middle) / self.unit - mean) * (-log_std).exp()
        inside = -0.5 * z.square() - log_std - _HALF_LOG_TWO_PI
        at_bound = torch.special.log_ndtr(torch.where(at_high, -z, z))
        return torch.where(at_low | at_high, at_bound, inside).sum(-1)

    def entropy(self, parameters: Tensor) -> Tensor:
        """Entropy before the clip, in the units above, `[...]`."""
        return (parameters.chunk(2, -1)[1] + (_HALF_LOG_TWO_PI + 0.5)).sum(-1)

    def mode(self, parameters: Tensor) -> Tensor:
        """The clipped means, `[..., *shape]`."""
        return self._action(parameters.chunk(2, -1)[0])

    def sample(self, parameters: Tensor, noise: Tensor, temperature: float = 1.0) -> Tensor:
        """Actions `[B, *shape]`; the temperature multiplies the variance."""
        mean, log_std = parameters.chunk(2, -1)
        return self._action(mean + math.sqrt(temperature) * log_std.exp() * normal(noise))

    def _action(self, x: Tensor) -> Tensor:
        return torch.clamp(self.middle + self.unit * x, self.low, self.high).unflatten(-1, self.shape)
