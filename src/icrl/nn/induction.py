"""Induction layer: it reads what followed earlier visits to the current observation, in one hop.

An n-gram layer (Akyurek et al., 2024; for algorithm distillation Zisman et al., 2024, arXiv 2411.01958) whose n-gram is
the observation: visits are matched exactly, by number. B windows, T new steps, S steps so far, D width, H heads,
Dh = D / H; x is the token an action is predicted from, e[j] = action[j] + reward[j] + obs[j + 1] embedded, n and m are
layer norms. Per head:

    J(t) = {j < t : obs[j] = obs[t]}
    x[t] += O (p[0] v[0] + sum over j in J(t) of p[j] V m(e[j]))
    p = softmax over 0 and J(t) of  Q n(x[t]) . k[0] / sqrt(Dh),  Q n(x[t]) . K m(e[j]) / sqrt(Dh) - r log c(j, t)

c(j, t) counts the visits in J(t) from j on: 1 for the newest. k[0] and v[0] are learned and stand for "no visit"; r is
learned too, so that a head can prefer the newest visits however long ago they were.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from icrl.nn.kv_cache import VisitCache
from icrl.nn.transformer import initialize_linear

if TYPE_CHECKING:
    from icrl.nn.gpt import GPTConfig

NO_VISIT = -1


class Induction(nn.Module):
    """The layer of the equation above."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        width, self.num_heads = config.embed_dim, config.num_heads
        self.norm, self.outcome_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)
        self.apply(initialize_linear)
        self.no_visit = nn.Parameter(0.02 * torch.randn(2, self.num_heads, 1, width // self.num_heads))  # key, value
        self.recency = nn.Parameter(torch.zeros(self.num_heads, 1, 1))
        self.attention_dropout = config.attention_dropout
        self.dropout = nn.Dropout(config.residual_dropout)

    def forward(self, x: Tensor, outcome: Tensor, visited: Tensor, obs: Tensor, cache: VisitCache | None) -> Tensor:
        """The layer's addition to the tokens `x` `[B, T, D]` of steps with observations `obs` `[B, T]`.

        `visited` `[B, T]` is the observation of the step before each (`NO_VISIT` if there is none) and `outcome`
        `[B, T, D]` what followed it, as the step itself shows it. With a cache the T steps continue it."""
        query = self._heads(self.query(self.norm(x)))  # [B, H, T, Dh]
        key, value = (self._heads(part) for part in self.key_value(self.outcome_norm(outcome)).chunk(2, dim=-1))
        before = cache.length if cache else 0
        if cache:
            key, value = cache.append(0, key, value)
            visited = cache.append_visited(visited)
            cache.advance(obs.shape[1])
        no_key, no_value = self.no_visit[:, None].expand(-1, len(x), -1, -1, -1)
        mixed = F.scaled_dot_product_attention(
            query,
            torch.cat([no_key, key], dim=2),
            torch.cat([no_value, value], dim=2),
            attn_mask=F.pad(self._bias(visited, obs, before), (1, 0)),
            dropout_p=self.attention_dropout if self.training else 0.0,
        )
        return self.dropout(self.out(mixed.transpose(1, 2).flatten(2)))

    def _bias(self, visited: Tensor, obs: Tensor, before: int) -> Tensor:
        """Attention bias of the new steps on all visits so far, `[B, H, T, S]`: -r log c(j, t) for a match, else minus
        infinity. Step i shows the visit of j = i - 1."""
        step = torch.arange(visited.shape[1], device=obs.device)
        matches = (obs[:, :, None] == visited[:, None]) & (step <= step[before:, None])  # [B, T, S]
        count = matches.flip(-1).cumsum(-1).flip(-1).clamp(min=1)
        return (-self.recency * count[:, None].log()).masked_fill(~matches[:, None], -torch.inf)

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
