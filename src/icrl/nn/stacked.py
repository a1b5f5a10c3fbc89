"""Networks of many learners as one module, and their optimizer: parameters have a leading learner axis.

L learners, S observations, H hidden width, O outputs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from icrl.contracts import EnvSpec
from icrl.nn.embeddings import point_features, point_flags, pool

if TYPE_CHECKING:
    from icrl.sources.options import NetworkConfig


class StackedNetwork(nn.Module):
    """An embedding of the observation and a linear layer, L of them side by side.

    Observations are integers, so a learner's network is a table over them. `forward` computes the whole table, and
    acting until the next update is a look-up."""

    def __init__(self, num_learners: int, num_obs: int, num_outputs: int, hidden_size: int, seeds: Tensor) -> None:
        """`seeds` `[L]`: the initial parameters of learner k are a function of its own seed alone."""
        super().__init__()
        embedding: list[Tensor] = []
        heads: list[Tensor] = []
        bound = hidden_size**-0.5
        for seed in seeds.tolist():
            generator = torch.Generator().manual_seed(seed)
            embedding.append(torch.randn(num_obs, hidden_size, generator=generator))
            heads.append(torch.empty(hidden_size, num_outputs).uniform_(-bound, bound, generator=generator))
        self.embedding = nn.Parameter(torch.stack(embedding))  # [L, S, H]
        self.heads = nn.Parameter(torch.stack(heads))  # [L, H, O]
        self.bias = nn.Parameter(torch.zeros(num_learners, 1, num_outputs))

    def forward(self) -> Tensor:
        """Outputs of every learner for every observation, `[L, S, O]`."""
        return torch.baddbmm(self.bias, self.embedding, self.heads)


def point_layers(spec: EnvSpec, num_outputs: int, hidden_size: int) -> dict[str, tuple[int, int]]:
    """Inputs and outputs of the layers of one learner's `StackedPointNetwork`."""
    return {
        "of_point": (2 * spec.points[1], hidden_size),
        "of_set": (2 * hidden_size + spec.points[1] + spec.num_actions, hidden_size),
        "heads": (hidden_size, num_outputs),
    }


class StackedPointNetwork(nn.Module):
    """Networks over point sets (Zaheer et al., "Deep sets", 2017, arXiv 1703.06114), L of them side by side.

    A layer on the `point_features` of each point, a layer on the maximum and mean over the points and on the flags, and
    a linear layer. The order of the points does not matter."""

    def __init__(self, spec: EnvSpec, num_outputs: int, hidden_size: int, seeds: Tensor) -> None:
        """`seeds` `[L]`: the initial parameters of learner k are a function of its own seed alone."""
        super().__init__()
        self._spec, shapes = spec, point_layers(spec, num_outputs, hidden_size)
        layers: dict[str, list[Tensor]] = {name: [] for name in shapes}
        for seed in seeds.tolist():
            generator = torch.Generator().manual_seed(seed)
            for name, (inputs, outputs) in shapes.items():
                bound = inputs**-0.5 if name == "heads" else (6 / inputs) ** 0.5
                layers[name].append(torch.empty(inputs, outputs).uniform_(-bound, bound, generator=generator))
        self.weights = nn.ParameterDict({name: torch.stack(of_all) for name, of_all in layers.items()})  # [L, in, out]
        biases = {name: torch.zeros(len(seeds), 1, outputs) for name, (_, outputs) in shapes.items()}
        self.biases = nn.ParameterDict(biases)

    def forward(self, obs: Tensor) -> Tensor:
        """Outputs of every learner for its own observations, `[T, B, K] -> [T, B, O]`."""
        num_learners, (num_steps, num_streams) = len(self.weights["heads"]), obs.shape[:2]
        own = obs.unflatten(1, (num_learners, -1)).transpose(0, 1).flatten(1, 2)  # [L, T * B / L, K]
        features, present = point_features(self._spec, own)  # [L, X, N, 2 * n], [L, X, N, 1]
        hidden = self._layer("of_point", features.flatten(1, 2)).relu()
        pooled = pool(hidden.unflatten(1, features.shape[1:3]), present)
        of_set = torch.cat([pooled, point_flags(self._spec, own)], dim=-1)
        outputs = self._layer("heads", self._layer("of_set", of_set).relu())
        return outputs.unflatten(1, (num_steps, -1)).transpose(0, 1).reshape(num_steps, num_streams, -1)

    def _layer(self, name: str, x: Tensor) -> Tensor:
        return torch.baddbmm(self.biases[name], x, self.weights[name])


class StackedAdam(torch.optim.Adam):
    """Adam (Kingma and Ba, 2015) for stacked networks, with the gradient clipped per learner."""

    def __init__(self, network: nn.Module, config: NetworkConfig) -> None:
        betas = (config.adam_beta1, config.adam_beta2)
        super().__init__(network.parameters(), lr=0.0, betas=betas, eps=config.adam_eps, fused=True)  # lr: see descend
        self._max_gradient_norm = config.max_gradient_norm

    def descend(self, loss: Tensor, learning_rate: float) -> Tensor:
        """One step of every learner on its own `loss` `[L]`, with a gradient norm of at most `max_gradient_norm`.
        Returns the norms before clipping, `[L]`. The losses are summed, so each gradient is that of its own loss."""
        self.zero_grad()
        loss.sum().backward()
        parameters = self.param_groups[0]["params"]
        norm = torch.stack([torch.linalg.vector_norm(p.grad, dim=(1, 2)) for p in parameters]).norm(dim=0)
        scale = (self._max_gradient_norm / (norm + 1e-6)).clamp(max=1.0)
        for parameter in parameters:
            parameter.grad.mul_(scale[:, None, None])
        self.param_groups[0]["lr"] = learning_rate
        self.step()
        return norm


def look_up(table: Tensor, index: Tensor) -> Tensor:
    """`table[index]` for a flat table, with a deterministic gradient: that of indexing depends on thread order."""
    return table.index_select(0, index.flatten()).view_as(index)
