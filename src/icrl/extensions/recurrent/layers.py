"""Recurrent layers in place of attention, with a state of constant size: the gated delta rule and a GRU.

B streams, T tokens, D width, H heads, Dh = D / H head width, C tokens in a chunk.

`delta` is the gated delta rule (Gated DeltaNet: Yang, Kautz & Hatamizadeh, 2024, arXiv 2412.06464). Each head writes a
value v[t] at a key k[t] into a matrix S `[Dh, Dh]`, in place of what stands there, forgets by a factor a[t], and reads
at a query q[t]. Keys and queries have length 1; a and b are numbers in (0, 1):

    S[t] = a[t] (1 - b[t] k[t] k[t]^T) S[t-1] + b[t] k[t] v[t]^T                q, k, v = linear in n(x[t])
    y[t] = O (rmsnorm(S[t]^T q[t]) * silu(G n(x[t])))                           a, b    = sigmoid of linear in n(x[t])

Chunks of C tokens are read by products of matrices. With g[i] the product of a from the start of the chunk to i, S the
state before the chunk, and D[i, j] = g[i] / g[j] for j <= i, else 0, the rows u[i] of what is written solve a system:

    u[i] = b[i] (v[i] - g[i] S^T k[i] - sum over j < i of D[i, j] (k[i] . k[j]) u[j])
    S[i] = g[i] S + sum over j <= i of D[i, j] k[j] u[j]^T

*Differences from the paper:* no short convolution and no SiLU before queries, keys and values, because a token holds a
whole transition; a is the sigmoid of a linear layer instead of Mamba-2's form; values are as wide as keys.

`gru` is a gated recurrent unit (Cho et al., 2014, arXiv 1406.1078), the memory of RL^2 (Duan et al., 2016, arXiv
1611.02779), with a linear layer behind it.
"""

from __future__ import annotations

from contextlib import nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from icrl.nn.cache import TokenCache
from icrl.nn.gpt import GPTConfig
from icrl.nn.networks import JoinedLinear, in_float32
from icrl.nn.transformer import trunk

CHUNK = 32  # tokens
_KEPT = 4.0  # logit of a at the start: half is forgotten after 38 tokens


class StateCache(TokenCache):
    """State of each recurrent layer after the tokens so far, one column `[layers, B, ...]`. It is zero at the start."""

    def read(self, layer: int) -> Tensor:
        state = self.columns[0][layer]
        return state if self.length else torch.zeros_like(state)

    def write(self, layer: int, state: Tensor) -> None:
        """`length` itself is moved by the caller, after all layers have written."""
        self.columns[0][layer] = state


def gated_delta(
    query: Tensor, key: Tensor, value: Tensor, rate: Tensor, log_kept: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """S^T q of each token, `[B, H, T, Dh]`, and the last state, `[B, H, Dh, Dh]`, from queries, keys and values
    `[B, H, T, Dh]`, b and log a `[B, H, T, 1]`, and the state before."""
    if query.shape[2] == 1:  # the equation itself
        state = log_kept.exp() * state
        state = torch.addcmul(state, key.mT, rate * (value - key @ state))
        return query @ state, state
    outputs = []
    columns = (part.split(CHUNK, dim=2) for part in (query, key, value, rate, log_kept))
    for q, k, v, b, log_a in zip(*columns, strict=True):
        log_g = log_a.cumsum(2)
        since = torch.ones(2 * (k.shape[2],), dtype=torch.bool, device=k.device).tril()
        decay = (log_g - log_g.mT).masked_fill(~since, -torch.inf).exp()  # D
        written = b * (v - log_g.exp() * (k @ state))
        system = (b * decay * (k @ k.mT)).tril(-1)
        written = torch.linalg.solve_triangular(system, written, upper=False, unitriangular=True)
        outputs.append(log_g.exp() * (q @ state) + (decay * (q @ k.mT)) @ written)
        rest = log_g[:, :, -1:] - log_g
        state = log_g[:, :, -1:].exp() * state + (rest.exp() * k).mT @ written
    return torch.cat(outputs, dim=2), state


@trunk("delta")
class GatedDelta(nn.Module):
    """The gated delta rule, in the interface of `transformer.Attention`."""

    cache, queries = StateCache, slice(None)

    def __init__(self, config: GPTConfig, *, last: bool = False) -> None:
        super().__init__()
        width, heads = config.embed_dim, config.num_heads
        self.head_dim = config.head_dim
        self.inputs = JoinedLinear(width, width, width, width, width, heads, heads)
        self.kept = nn.Parameter(torch.full((heads, 1, 1), _KEPT))
        self.norm, self.out = nn.RMSNorm(config.head_dim), nn.Linear(width, width)

    @staticmethod
    def cache_shapes(config: GPTConfig, num_tokens: int) -> tuple[tuple[int, ...], ...]:
        return ((config.num_heads, config.head_dim, config.head_dim),)

    def forward(self, x: Tensor, cache: StateCache | None, layer: int) -> Tensor:
        """`[B, T, D] -> [B, T, D]`. With a cache the T tokens continue it. The rule itself is computed in float32."""
        parts = in_float32(self.inputs(x)).split(self.inputs.sizes, dim=-1)
        query, key, value, gate = (part.unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for part in parts[:4])
        rate, kept = (part.mT[..., None] for part in parts[4:])  # [B, H, T, 1]
        state = cache.read(layer) if cache else query.new_zeros(*query.shape[:2], self.head_dim, self.head_dim)
        with torch.autocast(x.device.type, enabled=False):
            query, key = F.normalize(query, dim=-1), F.normalize(key, dim=-1)
            mixed, state = gated_delta(query, key, value, rate.sigmoid(), F.logsigmoid(kept + self.kept), state)
        if cache:
            cache.write(layer, state)
        return self.out((self.norm(mixed) * F.silu(gate)).transpose(1, 2).flatten(2))


@trunk("gru")
class GRU(nn.Module):
    """A gated recurrent unit, in the interface of `transformer.Attention`."""

    cache, queries = StateCache, slice(None)

    def __init__(self, config: GPTConfig, *, last: bool = False) -> None:
        super().__init__()
        self.gru = nn.GRU(config.embed_dim, config.embed_dim, batch_first=True)
        self.out = nn.Linear(config.embed_dim, config.embed_dim)

    @staticmethod
    def cache_shapes(config: GPTConfig, num_tokens: int) -> tuple[tuple[int, ...], ...]:
        return ((config.embed_dim,),)

    def forward(self, x: Tensor, cache: StateCache | None, layer: int) -> Tensor:
        """`[B, T, D] -> [B, T, D]`. With a cache the T tokens continue it. The unit is computed in float32."""
        # cuDNN computes no gradients in eval mode, in which trials are updated on.
        slow = x.is_cuda and torch.is_grad_enabled() and not self.training
        kernels = torch.backends.cudnn.flags(enabled=False) if slow else nullcontext()
        with torch.autocast(x.device.type, enabled=False), kernels:
            mixed, state = self.gru(in_float32(x), cache.read(layer)[None] if cache else None)
        if cache:
            cache.write(layer, state[0])
        return self.out(mixed)
