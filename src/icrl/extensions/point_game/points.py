"""Networks that read point sets: the encoder of the in-context model, and actor-critics of source agents.

B windows or streams, T steps, D width, K numbers in an observation, N points of n coordinates, A actions; L learners, H
hidden width, O outputs.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor, nn

from icrl.extensions.vectors.heads import IMPOSSIBLE, NetworkHeads
from icrl.extensions.vectors.stacked_mlp import by_learner, by_stream
from icrl.nn.encoders import encoder_for
from icrl.nn.gpt import GPTConfig
from icrl.nn.heads import Categorical
from icrl.nn.networks import STD, stacked
from icrl.sources.heads import heads_for
from icrl.spaces import EnvSpec


def is_point_set(spec: EnvSpec) -> bool:
    """True if observations are point sets."""
    return spec.points[0] > 0


@encoder_for(is_point_set)
class PointEmbedding(nn.Module):
    """Embedding of a point set: a layer on each point, then a second one on the `pooled_points`. The order of the
    points does not matter."""

    slack = 0  # a point set lies in no room

    def __init__(self, config: GPTConfig, spec: EnvSpec) -> None:
        super().__init__()
        self.spec = spec
        self.of_point = nn.Linear(2 * spec.points[1], config.embed_dim)
        self.of_set = nn.Linear(2 * config.embed_dim + spec.points[1] + spec.num_actions, config.embed_dim)
        nn.init.normal_(self.of_set.weight, std=STD)

    def forward(self, obs: Tensor, corners: Tensor) -> Tensor:
        """`[B, T, K] -> [B, T, D]`."""
        return self.of_set(pooled_points(self.spec, obs, lambda x: self.of_point(x.to(self.of_point.weight.dtype))))


def point_features(spec: EnvSpec, obs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Features `[..., N, 2 * n]` float32 of observations `[..., K]`, which points exist, `[..., N, 1]` bool, and the
    flags behind the points, `[..., n + num_actions]` float32.

    With m the largest coordinate of the position, a coordinate x is read as x / m, because the game is the same at any
    scale, and as log(1 + x) / log(1 + m), which tells small coordinates apart. Features of missing points are 0."""
    numbers, flags = obs.split([spec.points[0] * spec.points[1], spec.points[1] + spec.num_actions], dim=-1)
    numbers = numbers.unflatten(-1, spec.points)
    coordinates = (numbers - 1).clamp(min=0).float()
    largest = coordinates.amax((-2, -1), keepdim=True).clamp(min=1)
    features = torch.cat([coordinates / largest, coordinates.log1p() / largest.log1p()], dim=-1)
    return features, numbers[..., :1] > 0, flags.float()


def pooled_points(spec: EnvSpec, obs: Tensor, layer: Callable[[Tensor], Tensor]) -> Tensor:
    """Maximum and mean over the points of the ReLU of `layer` on their features `[..., N, 2 * n] -> [..., N, H]`, and
    the flags, `[..., K] -> [..., 2 * H + n + num_actions]`."""
    features, present, flags = point_features(spec, obs)
    hidden = layer(features).relu() * present
    mean = hidden.sum(-2) / present.sum(-2).clamp(min=1)
    return torch.cat([hidden.amax(-2), mean, flags.to(hidden.dtype)], dim=-1)


class StackedPointNetwork(nn.Module):
    """Networks over point sets (Zaheer et al., "Deep sets", 2017, arXiv 1703.06114), L of them side by side.

    A layer on each point, one on the `pooled_points`, and a linear layer. The order of the points does not matter."""

    def __init__(self, spec: EnvSpec, num_outputs: int, hidden_size: int, seeds: Tensor) -> None:
        super().__init__()
        self._spec, of_set = spec, 2 * hidden_size + spec.points[1] + spec.num_actions
        shapes = {"of_point": (2 * spec.points[1], hidden_size), "of_set": (of_set, hidden_size)}
        shapes["heads"] = (hidden_size, num_outputs)

        def parameters(generator: Generator) -> list[Tensor]:
            bounds = (inputs**-0.5 if name == "heads" else (6 / inputs) ** 0.5 for name, (inputs, _) in shapes.items())
            weights = [(torch.empty(shape), bound) for shape, bound in zip(shapes.values(), bounds, strict=True)]
            return [weight.uniform_(-bound, bound, generator=generator) for weight, bound in weights]

        self.weights = nn.ParameterDict(dict(zip(shapes, stacked(seeds, parameters), strict=True)))  # [L, in, out]
        biases = {name: torch.zeros(len(seeds), 1, outputs) for name, (_, outputs) in shapes.items()}
        self.biases = nn.ParameterDict(biases)

    def forward(self, obs: Tensor) -> Tensor:
        """Outputs of every learner for its own observations, `[T, B, K] -> [T, B, O]`."""
        own = by_learner(obs, len(self.weights["heads"]))  # [L, T * B / L, K]

        def layer(name: str, x: Tensor) -> Tensor:
            return torch.baddbmm(self.biases[name], x, self.weights[name])

        pooled = pooled_points(self._spec, own, lambda x: layer("of_point", x.flatten(1, 2)).unflatten(1, x.shape[1:3]))
        return by_stream(layer("heads", layer("of_set", pooled).relu()), len(obs))


@heads_for(is_point_set)
class PointHeads(NetworkHeads):
    """Heads over point sets. Illegal actions have probability 0."""

    def __init__(self, spec: EnvSpec, hidden_size: int, seeds: Tensor, device: torch.device) -> None:
        self._spec, self.policy = spec, Categorical(spec.num_actions)
        self.network = StackedPointNetwork(spec, spec.num_actions + 1, hidden_size, seeds).to(device)

    def _both(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        outputs = self.network(obs)
        return self._spec.legal_of(outputs[..., :-1], obs, IMPOSSIBLE), outputs[..., -1]
