"""Reward, state and action as streams of their own that read each other by cross-attention.

Streams s, r in {action, reward, state}, n a layer norm, per head:

    x[t, s] += O_s sum over u <= t and r of  softmax(Q_s n(x[t, s]) . K_r n(x[u, r]) / sqrt(Dh))  V_r n(x[u, r])
    x[t, s] += W2_s gelu(W1_s n(x[t, s]))

One softmax over the steps so far of all three streams is a stream's attention to itself and its cross-attention to
the other two; each stream has projections and a feed-forward layer of its own. What a step shows (the previous action,
the previous reward, the observation) is known when its action is chosen, so its three tokens see each other. Actions
are predicted from the state stream, so the last block updates this one alone. Norms need no copies: what they scale, a
stream's own layer scales next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from icrl.nn.transformer import Transformer

if TYPE_CHECKING:
    from icrl.config.root import ModelConfig

NUM_STREAMS = 3


class StreamLinear(nn.Module):
    """A linear layer for each stream: `[B, 3 T, in] -> [B, 3 T, out]`, where tokens 3 t, 3 t + 1, 3 t + 2 are those of
    step t."""

    def __init__(self, num_inputs: int, num_outputs: int) -> None:
        super().__init__()
        self.streams = nn.ModuleList(nn.Linear(num_inputs, num_outputs) for _ in range(NUM_STREAMS))

    def forward(self, x: Tensor) -> Tensor:
        mapped = [linear(x[:, stream::NUM_STREAMS]) for stream, linear in enumerate(self.streams)]
        return torch.stack(mapped, dim=2).flatten(1, 2)


class CrossTransformer(Transformer):
    """`[B, 3 T, D] -> [B, T, D]`, the state stream, of tokens action, reward, state, action, reward, state, ..."""

    def __init__(self, config: ModelConfig, recompute: bool = False) -> None:
        super().__init__(config, recompute, NUM_STREAMS, StreamLinear)
