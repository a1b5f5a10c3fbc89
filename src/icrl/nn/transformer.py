"""A causal transformer, pre-norm, with an exact key-value cache.

B streams, L tokens, D width, H heads, Dh = D / H head width, G tokens per step that see each other and all of the steps
before. With G = 1 this is ordinary causal attention. With `tokens=cross`, G = 3: action, reward and state are streams s
with parameters of their own, which read each other by cross-attention. With n a layer norm, per head:

    x[t, s] += O_s sum over u <= t and r of  softmax(Q_s n(x[t, s]) . K_r n(x[u, r]) / sqrt(Dh))  V_r n(x[u, r])
    x[t, s] += W2_s gelu(W1_s n(x[t, s]))

One softmax over all three streams is a stream's attention to itself and its cross-attention to the other two. Actions
are predicted from the state stream, so the last block updates this one alone. The norms are shared, because each
stream's own linear layer rescales their output.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from icrl.nn.kv_cache import KVCache
from icrl.nn.layers import ACTIVATIONS

if TYPE_CHECKING:
    from icrl.nn.gpt import GPTConfig

NUM_STREAMS = 3


def rotate(x: Tensor, first: int, tokens_per_step: int = 1) -> Tensor:
    """Rotary position code (Su et al., 2021) of tokens `first, first + 1, ...`, `[B, H, L, Dh]`: pairs of channels
    (i, i + Dh / 2) are turned by position * 10000 ** (-2 i / Dh), where the position is the number of the step."""
    half = x.shape[-1] // 2
    frequency = 10000.0 ** (-torch.arange(half, device=x.device) / half)
    position = torch.arange(first, first + x.shape[2], device=x.device) // tokens_per_step
    angle = position[:, None] * frequency  # [L, Dh / 2]
    cos = torch.cat([angle.cos(), angle.cos()], dim=-1).to(x.dtype)
    sin = torch.cat([-angle.sin(), angle.sin()], dim=-1).to(x.dtype)
    return x * cos + x.roll(half, dims=-1) * sin


def initialize_linear(module: nn.Module) -> None:
    """GPT-2's initialization of a linear layer: normal with standard deviation 0.02."""
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=0.02)
        nn.init.zeros_(module.bias)


class StreamLinear(nn.Module):
    """A linear layer per stream, `[B, 3 T, in] -> [B, 3 T, out]`; tokens 3 t, 3 t + 1 and 3 t + 2 belong to step t."""

    def __init__(self, num_inputs: int, num_outputs: int) -> None:
        super().__init__()
        self.streams = nn.ModuleList(nn.Linear(num_inputs, num_outputs) for _ in range(NUM_STREAMS))

    def forward(self, x: Tensor) -> Tensor:
        mapped = [linear(x[:, stream::NUM_STREAMS]) for stream, linear in enumerate(self.streams)]
        return torch.stack(mapped, dim=2).flatten(1, 2)


class Attention(nn.Module):
    """Causal self-attention over steps. In the last block only the last token of each step is a query."""

    def __init__(self, config: GPTConfig, *, last: bool = False) -> None:
        super().__init__()
        cross = config.tokens == "cross"
        self.num_heads = config.num_heads
        self.rotary = config.position == "rope"
        self.dropout = config.attention_dropout
        self.tokens_per_step = NUM_STREAMS if cross else 1
        self.queries = slice(self.tokens_per_step - 1, None, self.tokens_per_step) if last else slice(None)
        self.qkv = (StreamLinear if cross else nn.Linear)(config.embed_dim, 3 * config.embed_dim)
        self.out = (StreamLinear if cross and not last else nn.Linear)(config.embed_dim, config.embed_dim)

    def forward(self, x: Tensor, cache: KVCache | None, layer: int) -> Tensor:
        """`[B, L, D] -> [B, L, D]`, or `[B, L / G, D]` in the last block. With a cache the L tokens continue it."""
        query, key, value = self.qkv(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)  # [B, H, L, Dh]
        before = cache.length if cache else 0
        if self.rotary:
            query, key = (rotate(part, before, self.tokens_per_step) for part in (query, key))
        if cache:
            key, value = cache.append(layer, key, value)
        is_causal = before == 0 and self.tokens_per_step == 1
        mask = None
        if not is_causal and x.shape[1] > self.tokens_per_step:  # a single step sees everything
            step = torch.arange(before + x.shape[1], device=x.device) // self.tokens_per_step
            mask = (step <= step[before:, None])[self.queries]
        mixed = F.scaled_dot_product_attention(
            query[:, :, self.queries],
            key,
            value,
            attn_mask=mask,
            is_causal=is_causal,
            dropout_p=self.dropout if self.training else 0.0,
        )
        return self.out(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Attention and a feed-forward layer, each added to its input. The last block returns one token per step."""

    def __init__(self, config: GPTConfig, *, last: bool = False) -> None:
        super().__init__()
        linear = StreamLinear if config.tokens == "cross" and not last else nn.Linear
        self.attention_norm = nn.LayerNorm(config.embed_dim)
        self.attention = Attention(config, last=last)
        self.feed_forward_norm = nn.LayerNorm(config.embed_dim)
        self.widen = linear(config.embed_dim, config.ff_dim)
        self.narrow = linear(config.ff_dim, config.embed_dim)
        self.activation = ACTIVATIONS[config.activation]()
        self.dropout = nn.Dropout(config.residual_dropout)

    def forward(self, x: Tensor, cache: KVCache | None, layer: int) -> Tensor:
        mixed = self.attention(self.attention_norm(x), cache, layer)
        x = x[:, self.attention.queries] + self.dropout(mixed)
        return x + self.dropout(self.narrow(self.activation(self.widen(self.feed_forward_norm(x)))))


class Transformer(nn.Module):
    """Blocks and a final norm over embedded tokens, `[B, L, D] -> [B, L / G, D]`: the last token of every step.

    `recompute` is activation checkpointing: training keeps the input of each block alone."""

    def __init__(self, config: GPTConfig, recompute: bool = False) -> None:
        super().__init__()
        self.config, self.recompute = config, recompute
        final = config.num_layers - 1
        self.blocks = nn.ModuleList(Block(config, last=layer == final) for layer in range(config.num_layers))
        self.norm = nn.LayerNorm(config.embed_dim)
        self.apply(self._initialize)

    def forward(self, x: Tensor, cache: KVCache | None = None) -> Tensor:
        """With a cache the tokens continue it and are added to it; the result equals one forward over all tokens."""
        num_tokens = x.shape[1]
        for layer, block in enumerate(self.blocks):
            if self.recompute and self.training:
                x = checkpoint(block, x, cache, layer, use_reentrant=False)
            else:
                x = block(x, cache, layer)
        if cache:
            cache.advance(num_tokens)
        return self.norm(x)

    def _initialize(self, module: nn.Module) -> None:
        """GPT-2's initialization: what a block adds is scaled down by the number of additions."""
        initialize_linear(module)
        if isinstance(module, Block):
            for last in (*module.attention.out.modules(), *module.narrow.modules()):
                if isinstance(last, nn.Linear):
                    nn.init.normal_(last.weight, std=0.02 / (2 * self.config.num_layers) ** 0.5)
