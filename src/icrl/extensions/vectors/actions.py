"""Distributions of actions that are not one integer, for the model and for source agents.

Leading axes are any positions, P parameters, k numbers of an action. The space of the actions chooses:

    MultiDiscrete    a categorical for each number, independent of each other
    Box              `gaussian` or `binned`: a density for each number, independent of each other

gaussian: a Gaussian squashed into the bounds (Haarnoja et al., 2018, arXiv 1801.01290, appendix C). With u normal, mean
m and deviation s from the parameters, c the middle of the bounds and h half their distance:

    a = c + h tanh u,    log p(a) = log N(u; m, s^2) - log(h (1 - tanh^2 u)),    log s = 4 tanh(parameter)

binned: a histogram of n bins of equal width w, which can have several modes:  log p(a) = log softmax_bin(a) - log w

A temperature divides logits; for the Gaussian, it multiplies the variance of u. Source agents have `ClippedGaussian`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from gymnasium.spaces import Box, MultiDiscrete
from torch import Tensor, nn

from icrl.config.options import refuse
from icrl.extensions.vectors.encoders import SummedTables
from icrl.nn.encoders import OrNone, Standardize, small
from icrl.nn.heads import Categorical, Head, head_for
from icrl.nn.networks import in_float32
from icrl.randomness import cumulative, draw_possible, normal
from icrl.spaces import EnvSpec

if TYPE_CHECKING:
    from icrl.nn.gpt import GPTConfig

_INSIDE = 1 - 1e-4  # largest |tanh u|: actions on a bound have no finite u, so they are read as actions beside it
_LOG_STD = 4.0  # largest |log s|
_HERMITE = 64  # nodes of the quadrature of an entropy
_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


class MultiCategorical(Head):
    """A categorical for each of k numbers; number i lies in [0, sizes[i])."""

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        self.sizes, self.num_parameters, self.num_noise = list(sizes), sum(sizes), len(sizes)
        self._each = [Categorical(size) for size in sizes]

    def log_prob(self, parameters: Tensor, action: Tensor) -> Tensor:
        return torch.stack([one.log_prob(p, a) for one, p, a in self._parts(parameters, action)]).sum(0)

    def entropy(self, parameters: Tensor) -> Tensor:
        return torch.stack([one.entropy(p) for one, p in self._parts(parameters)]).sum(0)

    def mode(self, parameters: Tensor) -> Tensor:
        return torch.stack([one.mode(p) for one, p in self._parts(parameters)], dim=-1)

    def sample(self, parameters: Tensor, noise: Tensor, temperature: float = 1.0) -> Tensor:
        each = self._parts(parameters, noise)
        return torch.stack([one.sample(p, u[:, None], temperature) for one, p, u in each], dim=-1)

    def encoder(self, width: int) -> nn.Module:
        return OrNone(SummedTables(self.sizes, width), width)

    def _parts(self, parameters: Tensor, *columns: Tensor) -> Any:
        """The categorical of each number with its logits `[..., sizes[i]]` and its numbers in the `columns`
        `[..., k]`."""
        each = (column.unbind(-1) for column in columns)
        return zip(self._each, parameters.split(self.sizes, dim=-1), *each, strict=True)


class _Bounded(Head):
    """Density of actions between the bounds of a Box, with `per_number` parameters for each number of an action."""

    low: Tensor
    high: Tensor

    def __init__(self, space: Box, per_number: int) -> None:
        super().__init__()
        for name in ("low", "high"):  # part of the space, so no part of a checkpoint's parameters
            self.register_buffer(name, torch.as_tensor(getattr(space, name)).float(), persistent=False)
        self.num_noise = len(self.low)
        self.num_parameters = per_number * self.num_noise

    def encoder(self, width: int) -> nn.Module:
        scaled = Standardize((self.low + self.high) / 2, (self.high - self.low) / 2)
        return OrNone(nn.Sequential(scaled, small(nn.Linear(len(self.low), width))), width)

    def _within(self, action: Tensor) -> Tensor:
        """`action` moved into the bounds, which rounding may have left."""
        return torch.minimum(torch.maximum(action, self.low), self.high)


class SquashedGaussian(_Bounded):
    """The first density above. Its mode is that of u, squashed: the median of the density."""

    def __init__(self, space: Box) -> None:
        super().__init__(space, 2)

    def log_prob(self, parameters: Tensor, action: Tensor) -> Tensor:
        mean, log_std = self._normal(parameters)
        squashed = ((action - self._middle) / self._half).clamp(-_INSIDE, _INSIDE)
        z = (squashed.atanh() - mean) * (-log_std).exp()
        density = -0.5 * z.square() - log_std - _HALF_LOG_TWO_PI
        return (density - (-squashed.square()).log1p() - self._half.log()).sum(-1)

    def entropy(self, parameters: Tensor) -> Tensor:
        """Entropy of u, plus the mean of log(h (1 - tanh^2 u)) by Gauss-Hermite quadrature."""
        mean, log_std = self._normal(parameters)
        nodes, weights = (mean.new_tensor(each) for each in _hermite())
        u = mean[..., None] + log_std.exp()[..., None] * nodes
        of_u = log_std + (_HALF_LOG_TWO_PI + 0.5)
        return (of_u + (_log_slope(u) * weights).sum(-1) + self._half.log()).sum(-1)

    def mode(self, parameters: Tensor) -> Tensor:
        return self._squash(self._normal(parameters)[0])

    def sample(self, parameters: Tensor, noise: Tensor, temperature: float = 1.0) -> Tensor:
        mean, log_std = self._normal(parameters)
        return self._squash(mean + math.sqrt(temperature) * log_std.exp() * normal(noise).to(mean.dtype))

    def draw_in_units(self, parameters: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Samples tanh u `[..., k]` for standard normal `noise` `[..., k]`, and their log-density `[...]`, both with
        gradient. A number is in units of h from the middle of its bounds."""
        mean, log_std = self._normal(parameters)
        u = mean + log_std.exp() * noise
        density = -0.5 * noise.square() - log_std - _HALF_LOG_TWO_PI
        return u.tanh(), (density - _log_slope(u)).sum(-1)

    def in_units(self, action: Tensor) -> Tensor:
        """Actions in the units of `draw_in_units`."""
        return (action - self._middle) / self._half

    def from_units(self, numbers: Tensor) -> Tensor:
        """Inverse of `in_units`."""
        return self._within(self._middle + self._half * numbers)

    @property
    def _middle(self) -> Tensor:
        return (self.low + self.high) / 2

    @property
    def _half(self) -> Tensor:
        return (self.high - self.low) / 2

    def _squash(self, u: Tensor) -> Tensor:
        return self.from_units(u.tanh())

    def _normal(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and logarithm of the deviation of u, `[..., k]` each."""
        mean, free = in_float32(parameters).chunk(2, dim=-1)
        return mean, _LOG_STD * free.tanh()


class Binned(_Bounded):
    """The second density above. Its mode is the middle of the most probable bin."""

    def __init__(self, space: Box, num_bins: int) -> None:
        super().__init__(space, num_bins)
        self.num_bins = num_bins

    def log_prob(self, parameters: Tensor, action: Tensor) -> Tensor:
        bins = ((action - self.low) / self._width).long().clamp(0, self.num_bins - 1)
        logs = self._logits(parameters).log_softmax(-1).gather(-1, bins[..., None])[..., 0]
        return (logs - self._width.log()).sum(-1)

    def entropy(self, parameters: Tensor) -> Tensor:
        return (Categorical(self.num_bins).entropy(self._logits(parameters)) + self._width.log()).sum(-1)

    def mode(self, parameters: Tensor) -> Tensor:
        return self._within(self.low + (self._logits(parameters).argmax(-1) + 0.5) * self._width)

    def sample(self, parameters: Tensor, noise: Tensor, temperature: float = 1.0) -> Tensor:
        """The inverse of the distribution function: the noise says which bin, and where in it."""
        p = (self._logits(parameters) / temperature).softmax(-1).flatten(0, 1)  # [B * k, n]
        bins = draw_possible(p, noise.flatten())[:, None]
        below = torch.cat([torch.zeros_like(p[:, :1]), cumulative(p)], dim=1).gather(1, bins)
        part = ((noise.flatten()[:, None] - below) / p.gather(1, bins)).clamp(0, 1)
        return self._within(self.low + (bins + part).view(noise.shape) * self._width)

    @property
    def _width(self) -> Tensor:
        return (self.high - self.low) / self.num_bins

    def _logits(self, parameters: Tensor) -> Tensor:
        """Logits of the bins of each number, `[..., k, n]`."""
        return in_float32(parameters).unflatten(-1, (-1, self.num_bins))


class ClippedGaussian(Head):
    """Distribution of actions `[..., *shape]` of a Box with k numbers, given k means and k logarithms of standard
    deviations `[..., 2 k]`. Both are in units of half the distance between two finite bounds, means from their middle.

    With z = (a - mean) / deviation, the likelihood of a number that was drawn and then clipped is (Fujita and Maeda,
    "Clipped action policy gradient", 2018, arXiv 1802.07564)

        log pi(a) = log Phi(z)     at the lower bound,     Phi: distribution function of the standard normal
                    log Phi(-z)    at the upper bound
                    log N(a; mean, deviation^2)    between them
                    0              if both bounds are the same number

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
        at_bound = torch.special.log_ndtr(torch.where(at_high, -z, z)).masked_fill(at_low & at_high, 0.0)
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


@head_for(lambda spec: True)
def head_of(config: GPTConfig, spec: EnvSpec) -> Head:
    """Head of the model for the actions of a world with `spec`. Raises `ConfigError` for a space that has none."""
    space = spec.action_space
    if isinstance(space, Box):
        refuse(len(space.shape) != 1, f"actions in {space} have the shape {space.shape}: a head needs a vector")
        refuse(not space.is_bounded(), f"actions in {space} have no bounds: a head needs a lowest and a highest action")
        flat = f"actions in {space} have a number that is always the same: a head needs bounds that differ"
        refuse((space.low >= space.high).any(), flat)
        return SquashedGaussian(space) if config.head == "gaussian" else Binned(space, config.num_bins)
    refuse(config.head != "auto", f"model.head={config.head} is for actions in a Box, not in {space}: must be auto")
    fits = isinstance(space, MultiDiscrete) and len(space.shape) == 1
    refuse(not fits, f"actions in {space} have no head: must be Discrete, a MultiDiscrete vector or a Box")
    return MultiCategorical(space.nvec.tolist())  # pyrefly: ignore[missing-attribute]


def _log_slope(u: Tensor) -> Tensor:
    """log(1 - tanh^2 u), finite for any u."""
    return 2 * (math.log(2) - u - nn.functional.softplus(-2 * u))


def _hermite() -> tuple[Any, Any]:
    """Nodes and weights of the quadrature of a mean over the standard normal distribution."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(_HERMITE)
    return nodes, weights / weights.sum()
