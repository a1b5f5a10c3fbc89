"""Bandit policies from theory that learn in context: Thompson sampling and UCB1.

B streams, A arms. Pulls are counted over the whole stream.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from icrl.contracts import Step
from icrl.randomness import mix, normal, seeds_of, uniform
from icrl.spaces import EnvSpec

_TRIES = 8  # candidates for each gamma number; all are rejected once in 10^10 times


class Pulls(NamedTuple):
    """Statistics of the arms of each stream."""

    count: Tensor  # [B, A] float: pulls of each arm
    total: Tensor  # [B, A] float: sum of its rewards
    last: Tensor  # [B] int64: the arm pulled last


class _BanditPolicy:
    """Policy that counts pulls and rewards and pulls the arm with the largest score."""

    def __init__(self, spec: EnvSpec, deviation: float | None) -> None:
        """`deviation` of the rewards of an arm; None: they are 0 or 1."""
        self._num_arms, self._deviation = spec.num_actions, deviation

    def initial_carry(self, num_streams: int) -> Pulls:
        nothing = torch.zeros(num_streams, self._num_arms)
        return Pulls(nothing, nothing, torch.zeros(num_streams, dtype=torch.long))

    def act(self, carry: Pulls, step: Step, noise: Tensor) -> tuple[Tensor, Pulls]:
        count, total, last = (column.to(noise.device) for column in carry)
        acted = (step.timestep > 0) | step.terminated | step.truncated  # false before a stream's first pull
        pulled = torch.nn.functional.one_hot(last, self._num_arms) * acted[:, None]
        count = count + pulled
        total = total + pulled * step.reward[:, None]
        action = self.scores(count, total, noise).argmax(dim=1)
        return action, Pulls(count, total, action)

    def replace_action(self, carry: Pulls, action: Tensor) -> Pulls:
        """The next reward is credited to the `action` `[B]` that was done."""
        return carry._replace(last=action)

    def scores(self, count: Tensor, total: Tensor, noise: Tensor) -> Tensor:
        """Scores `[B, A]` of the arms after so many pulls with this sum of rewards, `[B, A]` each."""
        raise NotImplementedError


class ThompsonSampling(_BanditPolicy):
    """Draws a mean for each arm from its posterior and pulls the arm with the largest (Thompson, 1933). For rewards 0
    and 1 that is Beta(1 + wins, 1 + losses). For rewards with a known `deviation` and the prior N(0, 1) it is
    N(r / (n + deviation^2), deviation^2 / (n + deviation^2)) after n pulls with rewards r in all."""

    def scores(self, count: Tensor, total: Tensor, noise: Tensor) -> Tensor:
        seed = mix(seeds_of(noise), 0)[:, None]  # many numbers from one
        seed = mix(seed, torch.arange(self._num_arms, device=noise.device))  # [B, A]
        if self._deviation is None:
            wins, losses = (gamma(1 + n, mix(seed, i)) for i, n in enumerate((total, count - total)))
            return wins / (wins + losses)
        variance = self._deviation**2
        return total / (count + variance) + (variance / (count + variance)).sqrt() * normal(uniform(seed, 0))


class UCB1(_BanditPolicy):
    """Pulls every arm once, then the arm with the largest upper bound of its mean (Auer et al., 2002):

        mean + 2 * deviation * sqrt(2 * ln(t) / n)

    after t pulls in all and n of the arm. For rewards from [0, 1], whose deviation is at most 1/2, this is UCB1."""

    def scores(self, count: Tensor, total: Tensor, noise: Tensor) -> Tensor:
        pulls = count.sum(dim=1, keepdim=True).clamp(min=1)
        bound = total / count + 2 * (self._deviation or 0.5) * (2 * pulls.log() / count).sqrt()
        return bound.masked_fill(count == 0, math.inf)


def gamma(shape: Tensor, seed: Tensor) -> Tensor:
    """Gamma(shape, 1) numbers for shapes of at least 1, one for each seed (Marsaglia and Tsang, "A simple method for
    generating gamma variables", 2000): d * v with v = (1 + c * x)^3 for the first x ~ N(0, 1) that is accepted."""
    d = shape - 1 / 3
    c = 1 / (9 * d).sqrt()
    drawn = torch.zeros_like(shape)
    for attempt in range(_TRIES - 1, -1, -1):  # the first that is accepted comes last and stays
        x, u = normal(uniform(seed, 2 * attempt)), uniform(seed, 2 * attempt + 1)
        v = (1 + c * x).clamp(min=1e-9) ** 3
        accepted = (1 + c * x > 0) & (u.log() < x.square() / 2 + d * (1 - v + v.log()))
        drawn = torch.where(accepted, d * v, drawn)
    return drawn
