"""A causal transformer, pre-norm.

B streams, L tokens, T new steps, S steps so far, D width, H heads, Dh = D / H head width, G tokens per step that see
each other and all of the steps before. With G = 1 this is ordinary causal attention. With `tokens=cross`, G = 3:
action, reward and state are streams s with parameters of their own, which read each other by cross-attention. With n a
layer norm, per head:

    x[t, s] += O_s sum over u <= t and r of  softmax(Q_s n(x[t, s]) . K_r n(x[u, r]) / sqrt(Dh))  V_r n(x[u, r])
    x[t, s] += W2_s gelu(W1_s n(x[t, s]))

One softmax over all three streams is attention to the own stream and cross-attention to the other two. Actions are
predicted from the state stream, so the last block updates this one alone. The norms are shared, because each stream's
own linear layer rescales their output.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from icrl.config.modules import registrar
from icrl.nn.cache import KVCache, TokenCache
from icrl.nn.networks import STD, JoinedLinear

if TYPE_CHECKING:
    from icrl.nn.gpt import GPTConfig

NUM_STREAMS = 3
TRUNKS: dict[str, Any] = {}  # classes of layers that mix steps, by `model.trunk`


def trunk(name: str) -> Callable[[Any], Any]:
    """Decorator of a layer that `model.trunk=name` puts in place of `Attention`, with the same interface. Raises
    `ConfigError` if another layer has this name."""
    return registrar("trunk", name, TRUNKS)


def rotate(x: Tensor, first: int, group_size: int = 1) -> Tensor:
    """Rotary position code (Su et al., 2021) of tokens `first, first + 1, ...`, `[B, H, L, Dh]`: pairs of channels
    (i, i + Dh / 2) are turned by position * 10000 ** (-2 i / Dh). The position is the number of the group."""
    half = x.shape[-1] // 2
    frequency = 10000.0 ** (-torch.arange(half, device=x.device) / half)
    position = torch.arange(first, first + x.shape[2], device=x.device) // group_size
    angle = position[:, None] * frequency  # [L, Dh / 2]
    cos = torch.cat([angle.cos(), angle.cos()], dim=-1).to(x.dtype)
    sin = torch.cat([-angle.sin(), angle.sin()], dim=-1).to(x.dtype)
    return x * cos + x.roll(half, dims=-1) * sin


def sinusoids(width: int, position: Tensor) -> Tensor:
    """Sinusoidal position code (Vaswani et al., 2017), `[T] -> [T, D]`: channels 2 i and 2 i + 1 of position p are the
    sine and cosine of p * 10000 ** (-2 i / D), scaled to the initial size of the other embeddings."""
    frequency = 10000.0 ** (-torch.arange(0, width, 2, device=position.device) / width)
    angle = position[:, None] * frequency
    return STD * 2**0.5 * torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)[:, :width]


def initialize_linear(module: nn.Module) -> None:
    """GPT-2's initialization of a linear layer: normal with standard deviation 0.02."""
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=STD)
        nn.init.zeros_(module.bias)


class StreamLinear(nn.Module):
    """A linear layer per stream, `[B, 3 T, in] -> [B, 3 T, out]`; tokens 3 t, 3 t + 1 and 3 t + 2 belong to step t."""

    def __init__(self, num_inputs: int, *sizes: int) -> None:
        super().__init__()
        self.streams = nn.ModuleList(JoinedLinear(num_inputs, *sizes) for _ in range(NUM_STREAMS))

    def forward(self, x: Tensor) -> Tensor:
        mapped = [linear(x[:, stream::NUM_STREAMS]) for stream, linear in enumerate(self.streams)]
        return torch.stack(mapped, dim=2).flatten(1, 2)


@trunk("transformer")
class Attention(nn.Module):
    """Causal self-attention over groups of G tokens, those of a step with `tokens=cross`, else 1. In the last block
    only the last token of each group is a query. `cache` is the class of its cache."""

    cache = KVCache

    def __init__(self, config: GPTConfig, *, last: bool = False) -> None:
        super().__init__()
        cross, shared = config.tokens == "cross", config.kv_heads * config.head_dim
        self.head_dim, self.rotary, self.dropout = config.head_dim, config.position == "rope", config.attention_dropout
        self.group_size = NUM_STREAMS if cross else 1
        self.queries = slice(self.group_size - 1, None, self.group_size) if last else slice(None)
        self.sizes = (config.embed_dim, shared, shared)
        self.qkv = (StreamLinear if cross else JoinedLinear)(config.embed_dim, *self.sizes)
        self.out = (StreamLinear if cross and not last else nn.Linear)(config.embed_dim, config.embed_dim)

    @staticmethod
    def cache_shapes(config: GPTConfig, num_tokens: int) -> tuple[tuple[int, ...], ...]:
        """Shapes of the columns of a cache of one stream in one layer."""
        shape = config.kv_heads, num_tokens, config.head_dim
        return shape, shape

    def forward(self, x: Tensor, cache: Any, layer: int) -> Tensor:
        """`[B, L, D] -> [B, L, D]`, or `[B, L / G, D]` in the last block. With a cache the L tokens continue it."""
        parts = self.qkv(x).split(self.sizes, dim=-1)
        query, key, value = (part.unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for part in parts)  # [B, H, L, Dh]
        if self.rotary:
            before = cache.length if cache else 0
            query, key = (rotate(part, before, self.group_size) for part in (query, key))
        return self.out(self.mix(query, key, value, cache, layer).transpose(1, 2).flatten(2))

    def mix(self, query: Tensor, key: Tensor, value: Tensor, cache: Any, layer: int) -> Tensor:
        """Values `[B, H, L, Dh]`, or `[B, H, L / G, Dh]` in the last block, that the queries read."""
        before, length = cache.length if cache else 0, query.shape[2]
        if cache:
            key, value = cache.append(layer, key, value)
        is_causal, mask = bool(before == 0) and self.group_size == 1, None  # `before` is a symbol in an export
        if not is_causal and length > self.group_size:  # a single step sees everything
            step = torch.arange(before + length, device=query.device) // self.group_size
            mask = (step <= step[before:, None])[self.queries]
        dropout = self.dropout if self.training else 0.0
        return self.attend(query[:, :, self.queries], key, value, mask, dropout, is_causal)

    @staticmethod
    def attend(
        query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float, is_causal: bool
    ) -> Tensor:
        """softmax(Q K^T / sqrt(Dh)) V of queries `[B, H, L, Dh]` on keys and values `[B, K, S, Dh]`, where each head of
        these serves H / K heads of queries. `mask` `[L, S]` is true where a query sees a key."""
        is_shared = query.shape[1] > key.shape[1]
        return F.scaled_dot_product_attention(query, key, value, mask, dropout, is_causal, enable_gqa=is_shared)


ATTENTION: list[type[Attention]] = [Attention]  # an extension appends a faster one; the last one counts


class Block(nn.Module):
    """Attention, or another layer in its place, and a feed-forward layer, each added to its input. The last block
    returns the last token of each group."""

    def __init__(self, config: GPTConfig, *, last: bool = False) -> None:
        super().__init__()
        linear = StreamLinear if config.tokens == "cross" and not last else nn.Linear
        self.attention_norm = nn.LayerNorm(config.embed_dim)
        layer = TRUNKS[config.trunk]
        self.attention = (ATTENTION[-1] if layer is Attention else layer)(config, last=last)
        self.feed_forward_norm = nn.LayerNorm(config.embed_dim)
        self.widen, self.narrow = linear(config.embed_dim, config.ff_dim), linear(config.ff_dim, config.embed_dim)
        self.activation, self.dropout = nn.GELU(), nn.Dropout(config.residual_dropout)

    def forward(self, x: Tensor, cache: TokenCache | None, layer: int) -> Tensor:
        mixed = self.attention(self.attention_norm(x), cache, layer)
        x = x[:, self.attention.queries] + self.dropout(mixed)
        return x + self.dropout(self.narrow(self.activation(self.widen(self.feed_forward_norm(x)))))


class Transformer(nn.Module):
    """Blocks and a final norm over embedded tokens, of which the last one of every group is returned.

    `recompute` is activation checkpointing: training keeps the input of each block alone."""

    def __init__(self, config: GPTConfig, recompute: bool = False) -> None:
        super().__init__()
        self.config, self.recompute, number = config, recompute, config.num_layers
        blocks = [Block(config, last=layer == number - 1) for layer in range(number)]
        for block in blocks:
            block.apply(initialize_linear)
            for last in (*block.attention.out.modules(), *block.narrow.modules()):
                if isinstance(last, nn.Linear):  # GPT-2 scales what a block adds down by the number of additions
                    nn.init.normal_(last.weight, std=STD / (2 * number) ** 0.5)
        self.blocks, self.norm = nn.ModuleList(blocks), nn.LayerNorm(config.embed_dim)

    def forward(self, x: Tensor, cache: TokenCache | None = None) -> Tensor:
        """`[B, L, D] -> [B, L / G, D]`. Tokens continue a cache and join it; the result equals one forward over all."""
        num_tokens, again = x.shape[1], self.recompute and self.training
        for layer, block in enumerate(self.blocks):
            inputs = (x, cache, layer)
            x = checkpoint(block, *inputs, use_reentrant=False) if again else block(*inputs)
        if cache:
            cache.length += num_tokens
        return self.norm(x)
