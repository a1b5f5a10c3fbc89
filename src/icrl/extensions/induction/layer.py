"""Induction layers, which read what followed earlier visits to the current observation, so many steps ahead as there
are layers.

The first is an n-gram layer (Akyurek et al., 2024; for algorithm distillation Zisman et al., 2024, arXiv 2411.01958)
that matches observations exactly, in one hop. With x the token an action is predicted from, e[j] = action[j] +
reward[j] + obs[j + 1] embedded, n and m layer norms:

    J(t) = {j < t : obs[j] = obs[t]}
    x[t] += O (p[0] v[0] + sum over j in J(t) of p[j] V m(e[j]))
    p = softmax over 0 and J(t) of  Q n(x[t]) . k[0] / sqrt(Dh),  Q n(x[t]) . K m(e[j]) / sqrt(Dh) - r log c(j, t)

c(j, t) counts the visits in J(t) from j on: 1 for the newest. k[0] and v[0] are learned and stand for "no visit"; r is
learned too, so that a head can prefer the newest visits however long ago they were.

A layer after it reads e[j] + C x[j + 1] in place of e[j], where x[j + 1] is the token of the step after j as the layers
before have left it. That holds what had followed obs[j + 1] until then, so the layers look ahead as many steps as there
are of them, like sweeps of value iteration along what was experienced.

With `model.binding`, what followed an action is multiplied by 1 + u, u its standardized vector: in e[j] the reward and
the observation, and in the further layers C x[j + 1]. Then one head can hold what all actions led to.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from icrl.nn.cache import KVCache
from icrl.nn.gpt import Context, GPTConfig
from icrl.nn.networks import JoinedLinear
from icrl.nn.transformer import initialize_linear

NO_VISIT = -1
QUERIES = 128  # that look up visits at a time; what comes after the last of them is left out


class Lookup(nn.Module):
    """One layer of the equations above."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        width, self.num_heads = config.embed_dim, config.num_heads
        self.norm, self.outcome_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key_value = nn.Linear(width, width), JoinedLinear(width, width, width)
        self.out = nn.Linear(width, width)
        self.apply(initialize_linear)
        self.no_visit = nn.Parameter(0.02 * torch.randn(2, self.num_heads, 1, width // self.num_heads))  # key, value
        self.recency = nn.Parameter(torch.zeros(self.num_heads, 1, 1))
        self.attention_dropout, self.dropout = config.attention_dropout, nn.Dropout(config.residual_dropout)

    def project(self, x: Tensor, outcome: Tensor) -> tuple[Tensor, ...]:
        """Queries of the tokens `x` `[B, T, D]`, and keys and values of outcomes, `[B, H, T, Dh]` each."""
        parts = (self.query(self.norm(x)), *self.key_value(self.outcome_norm(outcome)).chunk(2, dim=-1))
        return tuple(part.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for part in parts)

    def read(self, query: Tensor, key: Tensor, value: Tensor, age: Tensor, hidden: Tensor) -> Tensor:
        """Sums of equation two for the queries `[B, H, T, Dh]`, given keys and values of "no visit" and of visits
        `[B, H, S, Dh]`, and the `ages` `[B, 1, T, S]`: `[B, T, D]`."""
        dropout, weight = self.attention_dropout if self.training else 0.0, -self.recency.to(age.dtype)
        before, parts = key.shape[2] - query.shape[2], list[Tensor]()
        for start in range(0, query.shape[2], QUERIES):
            rows, seen = slice(start, start + QUERIES), slice(before + start + QUERIES)
            bias = torch.addcmul(hidden[:, :, rows, seen], age[:, :, rows, seen], weight)  # [B, H, rows, seen]
            some = query[:, :, rows].to(key.dtype)
            parts.append(attend(some, key[:, :, seen], value[:, :, seen], bias, dropout))
        mixed = torch.cat(parts, dim=2).to(query.dtype)
        return self.dropout(self.out(mixed.transpose(1, 2).flatten(2)))


class Induction(Lookup):
    """The first layer, and `model.induction` - 1 `further` ones."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__(config)
        further, width = range(config.induction - 1), config.embed_dim
        self.further = nn.ModuleList(Lookup(config) for _ in further)
        self.reached = nn.ModuleList(nn.Linear(width, width) for _ in further)  # C
        self.reached.apply(initialize_linear)

    @staticmethod
    def new_cache(config: GPTConfig, num_streams: int, like: Tensor) -> KVCache:
        """An empty cache for a whole context, with keys and values as the parameter `like`, and the visits."""
        shape = (config.induction, num_streams, config.num_heads, config.context_len, config.head_dim)
        visited = like.new_empty(config.induction, num_streams, 1, config.context_len, 1, dtype=torch.long)
        return KVCache(like.new_empty(shape), like.new_empty(shape), visited)

    def forward(
        self, x: Tensor, outcome: Tensor, context: Context, unit: Tensor | None, cache: KVCache | None
    ) -> Tensor:
        """The layers' addition to the tokens `x` `[B, T, D]` of the steps of a `context`. `outcome` `[B, T, D]` is what
        followed the step before each, as the step itself shows it; `unit` `[B, T, D]` is u of the action of that step,
        or None without binding. With a cache the T steps continue it."""
        layers: list[Any] = [self, *self.further]
        visits, before = context.prev_obs.masked_fill(context.first, NO_VISIT), cache.length if cache else 0
        added, seen, masks = x.new_zeros(()), outcome, None
        for number, layer in enumerate(layers):
            query, key, value = layer.project(x + added, seen)
            visited = visits[:, None, :, None]
            key, value = (  # the first step follows nothing, so "no visit" takes its place
                torch.where(context.first[:, None, :, None], none.to(part.dtype), part)
                for none, part in zip(layer.no_visit, (key, value), strict=True)
            )
            if cache:
                key, value, visited = cache.append(number, key, value, visited)
            masks = masks or [part.to(key.dtype) for part in ages(context.obs, visited, before)]
            added = added + layer.read(query, key, value, *masks)
            if number < len(self.further):
                reached = self.reached[number](x + added)
                seen = outcome + (reached if unit is None else reached + unit * reached)
        if cache:
            cache.length += context.obs.shape[1]
        return added


def attend(query: Tensor, key: Tensor, value: Tensor, bias: Tensor, dropout: float) -> Tensor:
    """softmax(Q K^T / sqrt(Dh) + bias) V. PyTorch's kernel for a CPU is faster for a single query, but far slower for
    many whose bias is learned."""
    if query.shape[2] == 1 or not query.is_cpu:
        return F.scaled_dot_product_attention(query, key, value, bias, dropout)
    scores = query * query.shape[-1] ** -0.5 @ key.mT + bias
    return F.dropout(scores.softmax(-1), dropout) @ value


def ages(obs: Tensor, visited: Tensor, before: int) -> tuple[Tensor, Tensor]:
    """log c of each visit for each of the observations `[B, T]` after `before` steps, and what is added to the scores:
    0, or -inf where the observation `visited` `[B, 1, S, 1]` is another one or of a later step; `[B, 1, T, S]` each.
    Every observation sees the first step, which stands for "no visit"."""
    step = torch.arange(visited.shape[2], device=obs.device)  # step i shows the visit of j = i - 1
    matches = (obs[:, None, :, None] == visited.mT) & (step <= step[before:, None])
    age = matches.flip(-1).cumsum(-1).flip(-1).clamp(min=1).log().masked_fill(~matches, 0.0)
    return age, torch.zeros_like(age).masked_fill(~(matches | (step == 0)), -torch.inf)
