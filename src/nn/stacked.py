"""Many independent actor-critics as one module: parameters carry a leading learner axis.

L learners, S observations, H hidden width, A actions.
"""

import torch
from torch import Tensor, nn


class StackedActorCritic(nn.Module):
    """One shared embedding layer, then one linear layer each for actor and critic; L of them side by side.

    Observations are integers, so a learner's whole policy is a table over them: `forward` gives all of it at once, and
    acting until the next update is a look-up."""

    def __init__(self, num_learners: int, num_obs: int, num_actions: int, hidden_size: int, seeds: Tensor) -> None:
        """`seeds` `[L]`: learner k's initial parameters are a function of its own seed alone."""
        super().__init__()
        embedding: list[Tensor] = []
        heads: list[Tensor] = []
        for seed in seeds.tolist():
            generator = torch.Generator().manual_seed(seed)
            embedding.append(torch.randn(num_obs, hidden_size, generator=generator))
            bound = hidden_size**-0.5
            heads.append(torch.empty(hidden_size, num_actions + 1).uniform_(-bound, bound, generator=generator))
        self.embedding = nn.Parameter(torch.stack(embedding))  # [L, S, H]
        self.heads = nn.Parameter(torch.stack(heads))  # [L, H, A + 1]: the actor's columns, then the critic's
        self.bias = nn.Parameter(torch.zeros(num_learners, 1, num_actions + 1))

    def forward(self) -> tuple[Tensor, Tensor]:
        """Action logits `[L, S, A]` and values `[L, S]` of every learner for every observation."""
        outputs = torch.baddbmm(self.bias, self.embedding, self.heads)
        return outputs[..., :-1], outputs[..., -1]
