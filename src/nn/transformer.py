"""A causal transformer, pre-norm, with an exact key-value cache.

B streams, L tokens, D width, H heads, Dh = D / H head width.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from src.nn.kv_cache import KVCache
from src.schema import ModelConfig


def rotate(x: Tensor, first: int) -> Tensor:
    """Rotary position code (Su et al., 2021) of tokens `first, first + 1, ...`, `[B, H, L, Dh]`: pairs of channels
    (i, i + Dh / 2) are turned by position * 10000 ** (-2 i / Dh)."""
    half = x.shape[-1] // 2
    frequency = 10000.0 ** (-torch.arange(half, device=x.device) / half)
    angle = torch.arange(first, first + x.shape[2], device=x.device)[:, None] * frequency  # [L, Dh / 2]
    cos = torch.cat([angle.cos(), angle.cos()], dim=-1).to(x.dtype)
    sin = torch.cat([-angle.sin(), angle.sin()], dim=-1).to(x.dtype)
    return x * cos + x.roll(half, dims=-1) * sin


class Attention(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.num_heads = config.num_heads
        self.rotary = config.position == "rope"
        self.dropout = config.attention_dropout
        self.qkv = nn.Linear(config.embed_dim, 3 * config.embed_dim)
        self.out = nn.Linear(config.embed_dim, config.embed_dim)

    def forward(self, x: Tensor, cache: KVCache | None, layer: int) -> Tensor:
        """`[B, L, D] -> [B, L, D]`; with a cache, the L tokens follow those in it."""
        query, key, value = self.qkv(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)  # [B, H, L, Dh]
        before = cache.length if cache else 0
        if self.rotary:
            query, key = rotate(query, before), rotate(key, before)
        if cache:
            key, value = cache.append(layer, key, value)
        mask = None
        if before and x.shape[1] > 1:  # new token i sees all before it and new tokens up to i
            mask = torch.ones(x.shape[1], key.shape[2], dtype=torch.bool, device=x.device).tril(before)
        mixed = F.scaled_dot_product_attention(
            query,
            key,
            value,
            attn_mask=mask,
            is_causal=before == 0,
            dropout_p=self.dropout if self.training else 0.0,
        )
        return self.out(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.embed_dim)
        self.attention = Attention(config)
        self.feed_forward_norm = nn.LayerNorm(config.embed_dim)
        self.widen = nn.Linear(config.embed_dim, config.ff_dim)
        self.narrow = nn.Linear(config.ff_dim, config.embed_dim)
        self.dropout = nn.Dropout(config.residual_dropout)

    def forward(self, x: Tensor, cache: KVCache | None, layer: int) -> Tensor:
        x = x + self.dropout(self.attention(self.attention_norm(x), cache, layer))
        return x + self.dropout(self.narrow(F.gelu(self.widen(self.feed_forward_norm(x)))))


class Transformer(nn.Module):
    """Blocks and a final norm over embedded tokens. With `recompute`, training keeps the input of a block alone and
    computes the rest of it anew for the gradient (activation checkpointing): slower, with less memory."""

    def __init__(self, config: ModelConfig, recompute: bool = False) -> None:
        super().__init__()
        self.config, self.recompute = config, recompute
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        self.norm = nn.LayerNorm(config.embed_dim)
        self.apply(self._initialize)

    def forward(self, x: Tensor, cache: KVCache | None = None) -> Tensor:
        """`[B, L, D] -> [B, L, D]`. With a cache the tokens continue it and are added to it; the result equals that
        of one forward over all tokens."""
        for layer, block in enumerate(self.blocks):
            if self.recompute and self.training:
                x = checkpoint(block, x, cache, layer, use_reentrant=False)
            else:
                x = block(x, cache, layer)
        if cache:
            cache.advance(x.shape[1])
        return self.norm(x)

    def _initialize(self, module: nn.Module) -> None:
        """GPT-2's initialization: normal with 0.02, what a block adds scaled down by the number of additions."""
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=0.02)
            nn.init.zeros_(module.bias)
        if isinstance(module, Block):
            for last in (module.attention.out, module.narrow):
                nn.init.normal_(last.weight, std=0.02 / (2 * self.config.num_layers) ** 0.5)
