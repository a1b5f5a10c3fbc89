"""Network of soft actor-critics over vectors, of many learners as one module.

L learners, N rows for each, T steps, B = L * N streams, K numbers in an observation, k in an action, P policy outputs.
"""

import torch
from torch import Generator, Tensor, nn

from icrl.extensions.vectors.stacked_mlp import Normalised, StackedMLP, orthogonal
from icrl.nn.networks import by_stream, stacked


class StackedSoftActorCritic(Normalised):
    """Actors, twin critics and temperatures of L learners. Perceptrons have two hidden layers with rectifiers. A critic
    also reads an action of k numbers in [-1, 1], and its output is in running deviations of its targets, from their
    running mean."""

    def __init__(self, num_inputs: int, num_outputs: int, num_numbers: int, hidden_size: int, seeds: Tensor) -> None:
        super().__init__(len(seeds), num_inputs)
        sizes = (num_inputs, hidden_size, hidden_size)

        def parameters(generator: Generator) -> list[Tensor]:
            policy = orthogonal((*sizes, num_outputs), 0.01, generator)
            critic_sizes = (num_inputs + num_numbers, *sizes[1:], 1)
            twins = zip(*(orthogonal(critic_sizes, 1.0, generator) for _ in range(2)), strict=True)
            return policy + [torch.stack(twin) for twin in twins]

        weights = stacked(seeds, parameters)
        self.actor, self.critics = StackedMLP(weights[:3], torch.relu_), StackedMLP(weights[3:], torch.relu_)
        self.log_temperature = nn.Parameter(torch.zeros(len(seeds), 1, 1))

    def policy(self, obs: Tensor) -> Tensor:
        """Outputs of the policies `[T, B, P]` for observations `[T, B, K]`."""
        return by_stream(self.actor(self.normalised(obs)), len(obs))

    def as_values(self, outputs: Tensor) -> Tensor:
        """Values `[L, N]`, in the unit of rewards, for outputs of critics."""
        return self.returns.mean[..., 0] + self.returns.deviation()[..., 0] * outputs

    def as_outputs(self, values: Tensor) -> Tensor:
        """Inverse of `as_values`."""
        return (values - self.returns.mean[..., 0]) / self.returns.deviation()[..., 0]


def twin_values(critics: StackedMLP, x: Tensor, action: Tensor, *, constant: bool = False) -> Tensor:
    """Outputs of both critics, `[L, 2, N]`, for normalised observations `[L, N, K]` and actions `[L, N, k]`."""
    inputs = torch.cat([x, action], -1)[:, None].expand(-1, 2, -1, -1).flatten(0, 1)
    return critics(inputs, constant=constant)[..., 0].unflatten(0, (-1, 2))
