"""Many independent networks as one module, and what trains them: parameters carry a leading learner axis.

L learners, S observations, H hidden width, O outputs.
"""

import torch
from torch import Tensor, nn

from src.training_schema import NetworkConfig


class StackedNetwork(nn.Module):
    """An embedding of the observation, then a linear layer; L of them side by side.

    Observations are integers, so what a learner's network says is a table over them: `forward` gives all of it at once,
    and acting until the next update is a look-up."""

    def __init__(self, num_learners: int, num_obs: int, num_outputs: int, hidden_size: int, seeds: Tensor) -> None:
        """`seeds` `[L]`: learner k's initial parameters are a function of its own seed alone."""
        super().__init__()
        embedding: list[Tensor] = []
        heads: list[Tensor] = []
        for seed in seeds.tolist():
            generator = torch.Generator().manual_seed(seed)
            embedding.append(torch.randn(num_obs, hidden_size, generator=generator))
            bound = hidden_size**-0.5
            heads.append(torch.empty(hidden_size, num_outputs).uniform_(-bound, bound, generator=generator))
        self.embedding = nn.Parameter(torch.stack(embedding))  # [L, S, H]
        self.heads = nn.Parameter(torch.stack(heads))  # [L, H, O]
        self.bias = nn.Parameter(torch.zeros(num_learners, 1, num_outputs))

    def forward(self) -> Tensor:
        """`[L, S, O]`: the outputs of every learner for every observation."""
        return torch.baddbmm(self.bias, self.embedding, self.heads)


class StackedAdam(torch.optim.Adam):
    """Adam (Kingma and Ba, 2015) for the parameters of a `StackedNetwork`, with a gradient clip for each learner."""

    def __init__(self, network: StackedNetwork, config: NetworkConfig) -> None:
        betas = (config.adam_beta1, config.adam_beta2)
        super().__init__(network.parameters(), lr=0.0, betas=betas, eps=config.adam_eps, fused=True)  # lr: see descend
        self._max_gradient_norm = config.max_gradient_norm

    def descend(self, loss: Tensor, learning_rate: float) -> Tensor:
        """One step of every learner down its `loss` `[L]`, with its gradient scaled to a norm of at most
        `max_gradient_norm`. Returns the norms before, `[L]`.

        The losses are summed, so that a learner's gradient is that of its own loss."""
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
    """`table[index]` for a flat table. Its gradient is added up in one order, where that of indexing depends on which
    thread comes first."""
    return table.index_select(0, index.flatten()).view_as(index)
