"""Actors and critics over vectors, of many learners as one module.

L learners, N rows for each, T steps, B = L * N streams, K numbers in an observation, H hidden width, P policy outputs.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Generator, Tensor, nn

from icrl.nn.networks import stacked

_LIMIT = 10.0  # deviations from the mean beyond which a normalised observation is cut off
_TINY = 1e-8  # added to variances


def by_learner(x: Tensor, num_learners: int) -> Tensor:
    """`[T, L * N, ...]` numbers of streams as those of learners, `[L, T * N, ...]`."""
    return x.unflatten(1, (num_learners, -1)).transpose(0, 1).flatten(1, 2)


def by_stream(x: Tensor, num_steps: int) -> Tensor:
    """Inverse of `by_learner`."""
    return x.unflatten(1, (num_steps, -1)).transpose(0, 1).flatten(1, 2)


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
    """Perceptrons, L of them side by side, `[L, N, in] -> [L, N, out]`, or C for each learner, `[L * C, N, in] ->
    [L * C, N, out]`."""

    def __init__(self, weights: list[Tensor], activation: Callable[[Tensor], Tensor] = torch.tanh) -> None:
        """`weights` are `[L, in, out]` or `[L, C, in, out]`, from the first layer to the last; biases start at 0. The
        `activation` is between the layers."""
        super().__init__()
        self.weights = nn.ParameterList(weights)
        self.biases = nn.ParameterList(torch.zeros_like(weight[..., :1, :]) for weight in weights)
        self._activation = activation

    def forward(self, x: Tensor, *, constant: bool = False) -> Tensor:
        """With `constant` there is no gradient of the parameters."""
        for number, layer in enumerate(zip(self.weights, self.biases, strict=True)):
            weight, bias = (part.detach() if constant else part for part in layer)
            x = self._activation(x) if number else x
            x = torch.baddbmm(bias.flatten(0, -3), x, weight.flatten(0, -3))
        return x


def orthogonal(sizes: Sequence[int], last_gain: float, generator: Generator) -> list[Tensor]:
    """Weights of a perceptron with layers of these sizes (Saxe et al., 2014, arXiv 1312.6120): gain sqrt(2), and
    `last_gain` in the last layer."""
    gains = [2**0.5] * (len(sizes) - 2) + [last_gain]
    shapes = zip(sizes[:-1], sizes[1:], gains, strict=True)
    return [nn.init.orthogonal_(torch.empty(before, after), gain, generator) for before, after, gain in shapes]


class Normalised(nn.Module):
    """Base of networks of L learners with running moments of the observations and returns that they learned from."""

    def __init__(self, num_learners: int, num_inputs: int) -> None:
        super().__init__()
        self._num_learners = num_learners
        self.observed, self.returns = (RunningMoments(num_learners, size) for size in (num_inputs, 1))

    def normalised(self, obs: Tensor) -> Tensor:
        """Observations `[T, B, K]` in running deviations, `[L, N, K]`."""
        return self.observed.normalised(by_learner(obs, self._num_learners))

    def observe(self, obs: Tensor | None, returns: Tensor) -> None:
        """Take observations `[T, B, K]`, unless a body reads them, and returns `[T, B]` into their running means and
        deviations."""
        if obs is not None:
            self.observed.add(by_learner(obs, self._num_learners))
        self.returns.add(by_learner(returns[..., None], self._num_learners))

    def in_deviations(self, errors: Tensor) -> Tensor:
        """Errors of values `[T, B]` in running deviations of returns."""
        return (errors.unflatten(1, (self._num_learners, -1)) / self.returns.deviation()[:, 0]).flatten(1)


class StackedActorCritic(Normalised):
    """Actors and critics of L learners. Each has a perceptron with two hidden layers for its policy, and one for its
    value, on observations normalised by their running mean and deviation. A value is the output of its perceptron times
    the running deviation of returns plus their running mean, so that rewards may have any scale (compare van Hasselt et
    al., 2016, arXiv 1602.07714). The policy has `num_free` more outputs, which start at 0 and do not depend on the
    observation.

    The gain of the last layer is 1 for the value and 0.01 for the policy, so that all observations begin with almost
    the same policy (Andrychowicz et al., 2021, arXiv 2006.05990). A `body` (`stacked_bodies`) may compute the
    perceptrons' inputs; it has moments of its own if it needs any."""

    def __init__(
        self,
        num_inputs: int,
        num_outputs: int,
        num_free: int,
        hidden_size: int,
        seeds: Tensor,
        body: nn.Module | None = None,
    ) -> None:
        super().__init__(len(seeds), num_inputs)
        self.body = body
        sizes = (num_inputs, hidden_size, hidden_size)

        def parameters(generator: Generator) -> list[Tensor]:
            policy = orthogonal((*sizes, num_outputs), 0.01, generator)
            return policy + orthogonal((*sizes, 1), 1.0, generator)

        weights = stacked(seeds, parameters)
        self.actor, self.critic = StackedMLP(weights[:3]), StackedMLP(weights[3:])
        self.free = nn.Parameter(torch.zeros(len(seeds), 1, num_free)) if num_free else None

    def forward(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs of the policies `[T, B, P]` and values `[T, B]` for observations `[T, B, K]`."""
        x = self.normalised(obs)
        return self._policy(x, len(obs)), self._value(x, len(obs))

    def policy(self, obs: Tensor) -> Tensor:
        return self._policy(self.normalised(obs), len(obs))

    def value(self, obs: Tensor) -> Tensor:
        return self._value(self.normalised(obs), len(obs))

    def _policy(self, x: Tensor, num_steps: int) -> Tensor:
        outputs = self.actor(x)
        if self.free is not None:
            outputs = torch.cat([outputs, self.free.expand(-1, x.shape[1], -1)], -1)
        return by_stream(outputs, num_steps)

    def _value(self, x: Tensor, num_steps: int) -> Tensor:
        values = self.returns.mean + self.returns.deviation() * self.critic(x)
        return by_stream(values, num_steps)[..., 0]
