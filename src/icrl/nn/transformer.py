"""A causal transformer, pre-norm, with an exact key-value cache.

B streams, L tokens, D width, H heads, Dh = D / H head width. A step may be G tokens that see each other and all of the
steps before (`tokens_per_step`, see `cross.py`); with G = 1 this is causal attention as usual.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from icrl.nn.kv_cache import KVCache

if TYPE_CHECKING:
    from icrl.config.root import ModelConfig

MakeLinear = Callable[[int, int], nn.Module]
ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "gelu": nn.GELU}


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
    """GPT-2's initialization of a linear layer: normal with 0.02."""
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=0.02)
        nn.init.zeros_(module.bias)


class Attention(nn.Module):
    def __init__(
        self,
        config: ModelConfig,
        tokens_per_step: int = 1,
        linear: MakeLinear = nn.Linear,
        *,
        last: bool = False,
    ) -> None:
        """`last`: only the last token of every step asks."""
        super().__init__()
        self.num_heads = config.num_heads
        self.rotary = config.position == "rope"
        self.dropout = config.attention_dropout
        self.tokens_per_step = tokens_per_step
        self.asking = slice(tokens_per_step - 1, None, tokens_per_step) if last else slice(None)
        self.qkv = linear(config.embed_dim, 3 * config.embed_dim)
        self.out = (nn.Linear if last else linear)(config.embed_dim, config.embed_dim)

    def forward(self, x: Tensor, cache: KVCache | None, layer: int) -> Tensor:
        """`[B, L, D] -> [B, L, D]`, or `[B, L / G, D]` in the last layer; with a cache, the L tokens follow those in
        it."""
        query, key, value = self.qkv(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)  # [B, H, L, Dh]
        before = cache.length if cache else 0
        if self.rotary:
            query, key = (rotate(part, before, self.tokens_per_step) for part in (query, key))
        if cache:
            key, value = cache.append(layer, key, value)
        is_causal = before == 0 and self.tokens_per_step == 1
        mask = None
        if not is_causal and x.shape[1] > self.tokens_per_step:  # a single step sees everything
            mask = self._visible(x.shape[1], before, x.device)[self.asking]
        mixed = F.scaled_dot_product_attention(
            query[:, :, self.asking],
            key,
            value,
            attn_mask=mask,
            is_causal=is_causal,
            dropout_p=self.dropout if self.training else 0.0,
        )
        return self.out(mixed.transpose(1, 2).flatten(2))

    def _visible(self, new: int, before: int, device: torch.device) -> Tensor:
        """Which tokens the new ones see, `[new, before + new]`: those of all steps up to their own."""
        step = torch.arange(before + new, device=device) // self.tokens_per_step
        return step <= step[before:, None]


class Block(nn.Module):
    def __init__(
        self, config: ModelConfig, tokens_per_step: int = 1, linear: MakeLinear = nn.Linear, *, last: bool = False
    ) -> None:
        """`last`: nothing reads any but the last token of every step, so only these are computed."""
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.embed_dim)
        self.attention = Attention(config, tokens_per_step, linear, last=last)
        self.feed_forward_norm = nn.LayerNorm(config.embed_dim)
        feed = nn.Linear if last else linear
        self.widen = feed(config.embed_dim, config.ff_dim)
        self.narrow = feed(config.ff_dim, config.embed_dim)
        self.activation = ACTIVATIONS[config.activation]()
        self.dropout = nn.Dropout(config.residual_dropout)

    def forward(self, x: Tensor, cache: KVCache | None, layer: int) -> Tensor:
        mixed = self.attention(self.attention_norm(x), cache, layer)
        x = x[:, self.attention.asking] + self.dropout(mixed)
        return x + self.dropout(self.narrow(self.activation(self.widen(self.feed_forward_norm(x)))))


class Transformer(nn.Module):
    """Blocks and a final norm over embedded tokens. With `recompute`, training keeps the input of a block alone and
    computes the rest of it anew for the gradient (activation checkpointing): slower, with less memory."""

    def __init__(
        self,
        config: ModelConfig,
        recompute: bool = False,
        tokens_per_step: int = 1,
        linear: MakeLinear = nn.Linear,
    ) -> None:
        """`linear` makes the linear layers of every block."""
        super().__init__()
        self.config, self.recompute = config, recompute
        final = config.num_layers - 1
        self.blocks = nn.ModuleList(
            Block(config, tokens_per_step, linear, last=layer == final) for layer in range(config.num_layers)
        )
        self.norm = nn.LayerNorm(config.embed_dim)
        self.apply(self._initialize)

    def forward(self, x: Tensor, cache: KVCache | None = None) -> Tensor:
        """`[B, L, D] -> [B, L / G, D]`: what comes of the last token of every step. With a cache the tokens continue
        it and are added to it; the result equals that of one forward over all tokens."""
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
