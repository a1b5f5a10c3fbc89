"""Attention by products that are written out, where PyTorch's kernel for a CPU is slower: single queries, bfloat16."""

import math
from typing import Any

import torch
from torch import Tensor

from icrl.extensions.cpu_attention.caches import DenseCache, RowCache
from icrl.nn.transformer import Attention

MOST_QUERIES = 160  # of a block in causal attention; smaller ones are slower


class AttentionOnCPU(Attention):
    """The core's layer, which attends in the fastest way."""

    def mix(self, query: Tensor, key: Tensor, value: Tensor, cache: Any, layer: int) -> Tensor:
        if isinstance(cache, (DenseCache, RowCache)) and query.shape[2] == 1:
            return cache.attend(layer, query, key, value)
        return super().mix(query, key, value, cache, layer)

    @staticmethod
    def attend(
        query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float, is_causal: bool
    ) -> Tensor:
        batch, _, length, width = query.shape
        if dropout or not query.is_cpu or (length > 1 and query.dtype != torch.bfloat16):
            return Attention.attend(query, key, value, mask, dropout, is_causal)
        key, value = (part.reshape(batch * part.shape[1], -1, width) for part in (key, value))
        if not is_causal or length == 1:
            hidden = None if mask is None else query.new_zeros(mask.shape).masked_fill(~mask, -torch.inf)
            return _products(query, key, value, hidden)
        block, parts = math.ceil(length / math.ceil(length / MOST_QUERIES)), list[Tensor]()
        for start in range(0, length, block):  # keys after the last query of a block are left out
            some = query[:, :, start : start + block]
            end = start + some.shape[2]
            hidden = query.new_full((end - start, end), -torch.inf).triu(start + 1)
            parts.append(_products(some, key[:, :end], value[:, :end], hidden))
        return torch.cat(parts, dim=2) if len(parts) > 1 else parts[0]


def _products(query: Tensor, key: Tensor, value: Tensor, hidden: Tensor | None) -> Tensor:
    """`attend` by two products, on keys and values `[B K, S, Dh]`. `hidden` `[L, S]` is added to the scores."""
    batch, heads, length, width = query.shape
    rows = (query * width**-0.5).reshape(len(key), -1, width)
    if hidden is None:
        scores = torch.bmm(rows, key.mT)
    else:
        scores = torch.baddbmm(hidden.repeat(rows.shape[1] // length, 1), rows, key.mT)
    return torch.bmm(scores.softmax(-1), value).view(batch, heads, length, width)
