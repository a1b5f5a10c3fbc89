"""Actors and critics over vectors, of many learners as one module.

L learners, N rows for each, T steps, B = L * N streams, K numbers in an observation, H hidden width, P policy outputs.
"""

import torch
from torch import Generator, Tensor, nn

from icrl.nn.networks import by_learner, by_stream, stacked

_LIMIT = 10.0  # deviations from the mean beyond which a normalised observation is cut off
_TINY = 1e-8  # added to variances


class RunningMoments(nn.Module):
    """Mean and variance of all samples so far, for each learner (Chan, Golub and LeVeque, 1979, "Updating formulae and
    a pairwise algorithm for computing sample variances"). They are buffers, so checkpoints hold them."""

    def __init__(self, num_learners: int, num_columns: int) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(num_learners, 1, num_columns))
        self.register_buffer("variance", torch.ones(num_learners, 1, num_columns))

    @torch.no_grad()
    def add(self, samples: Tensor) -> None:
        """Take in `[L, N, K]` samples."""
        variance, mean = torch.var_mean(samples, dim=1, correction=0, keepdim=True)
        total = self.count + samples.shape[1]
        share = (samples.shape[1] / total).float()
        delta = mean - self.mean
        self.mean += share * delta
        self.variance += share * (variance - self.variance + (1 - share) * delta.square())
        self.count.copy_(total)

    def normalised(self, samples: Tensor) -> Tensor:
        """`[L, N, K]` samples with mean 0 and deviation 1, cut off at 10 deviations."""
        return ((samples - self.mean) / self.deviation()).clamp(-_LIMIT, _LIMIT)

    def deviation(self) -> Tensor:
        """Standard deviations, `[L, 1, K]`."""
        return (self.variance + _TINY).sqrt()


class StackedMLP(nn.Module):
    """Perceptrons with tanh between their linear layers, L of them side by side, `[L, N, in] -> [L, N, out]`."""

    def __init__(self, weights: list[Tensor]) -> None:
        """`weights` are `[L, in, out]`, from the first layer to the last; biases start at 0."""
        super().__init__()
        self.weights = nn.ParameterList(weights)
        self.biases = nn.ParameterList(torch.zeros(len(weight), 1, weight.shape[2]) for weight in weights)

    def forward(self, x: Tensor) -> Tensor:
        for number, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = torch.baddbmm(bias, x.tanh() if number else x, weight)
        return x


class StackedActorCritic(nn.Module):
    """Actors and critics of L learners. Each has a perceptron with two hidden layers for its policy, and one for its
    value, on observations normalised by their running mean and deviation. A value is the output of its perceptron times
    the running deviation of returns plus their running mean, so that rewards may have any scale (compare van Hasselt et
    al., 2016, arXiv 1602.07714). The policy has `num_free` more outputs, which start at 0 and do not depend on the
    observation.

    Weights are orthogonal (Saxe et al., 2014, arXiv 1312.6120) with gain sqrt(2), in the last layer 1 for the value and
    0.01 for the policy, so that all observations begin with almost the same policy (Andrychowicz et al., 2021, arXiv
    2006.05990).

    A `body` (`stacked_bodies`) may compute the perceptrons' inputs; it has moments of its own if it needs any."""

    def __init__(
        self,
        num_inputs: int,
        num_outputs: int,
        num_free: int,
        hidden_size: int,
        seeds: Tensor,
        body: nn.Module | None = None,
    ) -> None:
        super().__init__()
        sizes = [num_inputs, hidden_size, hidden_size]

        def parameters(generator: Generator) -> list[Tensor]:
            return [
                nn.init.orthogonal_(torch.empty(before, after), gain, generator)
                for outputs, last in ((num_outputs, 0.01), (1, 1.0))
                for before, after, gain in zip(sizes, [*sizes[1:], outputs], (2**0.5, 2**0.5, last), strict=True)
            ]

        weights, self._num_learners = stacked(seeds, parameters), len(seeds)
        self.actor, self.critic = StackedMLP(weights[:3]), StackedMLP(weights[3:])
        self.free = nn.Parameter(torch.zeros(len(seeds), 1, num_free)) if num_free else None
        self.observed, self.returns = (RunningMoments(len(seeds), size) for size in (num_inputs, 1))
        self.body = body

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs of the policies `[T, B, P]` and values `[T, B]` for observations `[T, B, K]`."""
        x = self._normalised(obs)
        return self._policy(x, len(obs)), self._value(x, len(obs))

    def policy(self, obs: Tensor) -> Tensor:
        return self._policy(self._normalised(obs), len(obs))

    def value(self, obs: Tensor) -> Tensor:
        return self._value(self._normalised(obs), len(obs))

    def observe(self, obs: Tensor | None, returns: Tensor) -> None:
        """Take observations `[T, B, K]`, unless a body reads them, and returns `[T, B]` into their running means and
        deviations."""
        if obs is not None:
            self.observed.add(by_learner(obs, self._num_learners))
        self.returns.add(by_learner(returns[..., None], self._num_learners))

    def in_deviations(self, errors: Tensor) -> Tensor:
        """Errors of values `[T, B]` in running deviations of returns."""
        return (errors.unflatten(1, (self._num_learners, -1)) / self.returns.deviation()[:, 0]).flatten(1)

    def _normalised(self, obs: Tensor) -> Tensor:
        return self.observed.normalised(by_learner(obs, self._num_learners))

    def _policy(self, x: Tensor, num_steps: int) -> Tensor:
        outputs = self.actor(x)
        if self.free is not None:
            outputs = torch.cat([outputs, self.free.expand(-1, x.shape[1], -1)], -1)
        return by_stream(outputs, num_steps)

    def _value(self, x: Tensor, num_steps: int) -> Tensor:
        values = self.returns.mean + self.returns.deviation() * self.critic(x)
        return by_stream(values, num_steps)[..., 0]
