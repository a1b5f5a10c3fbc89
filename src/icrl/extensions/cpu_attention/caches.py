"""Caches of keys and values for a CPU.

Attention of one query to the keys and values so far is

    sum over s of  softmax(q . k[s] / sqrt(Dh))  v[s]

Most of a rollout's time goes into reading them. On many processors products with single rows run far below the memory's
rate, and sums of weighted rows (`embedding_bag`) are faster, so `RowCache` lays out both products as such sums. On
others, those with AMX, products are faster than such sums, and `DenseCache` serves them: PyTorch's kernel in bfloat16,
and in float32 plain products with keys that lie channel by channel
(`python -m benchmarks.extensions.cpu_attention.caches`).
"""

from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

from icrl.nn.cache import KVCache, TokenCache


class DenseCache(KVCache):
    """Keys and values `[layers, B, K, capacity, Dh]` of a dtype of their own. Each of the K heads of keys and values
    serves the queries of H / K heads."""

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        """An empty cache of `shape`, layers, B, K, capacity and Dh."""
        *rows, capacity, width = shape
        keys = torch.empty(shape, dtype=dtype)
        if dtype == torch.float32:  # tokens of a channel are neighbours
            keys = torch.empty(*rows, width, capacity).mT
        super().__init__(keys, torch.empty(shape, dtype=dtype))

    def append(self, layer: int, *new: Tensor) -> list[Tensor]:
        """As `KVCache.append`, in the dtype of `new`; tokens of an empty cache are returned before they are rounded."""
        tokens = super().append(layer, *new)
        return [*new] if self.length == 0 else [column.to(new[0].dtype) for column in tokens]

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """As `RowCache.attend`."""
        keys, values = super().append(layer, key, value)
        streams, heads, _, width = keys.shape
        if keys.dtype != torch.float32:
            rows = query.to(keys.dtype)
            mixed = F.scaled_dot_product_attention(rows, keys, values, enable_gqa=query.shape[1] > heads)
            return mixed.to(query.dtype)
        rows = (query * width**-0.5).reshape(streams, heads, -1, width)  # queries that share keys
        return ((rows @ keys.mT).softmax(-1) @ values).reshape(query.shape)


class RowCache(TokenCache):
    """Keys and values of all tokens so far as rows of tables. Values `[layers, B, K, capacity, Dh]` have a
    row for each token; keys `[layers, blocks, B, K, Dh, BLOCK]` have one for each channel in each block of tokens. Each
    of the K heads of keys and values serves the queries of H / K heads. In bfloat16 sums are float32."""

    BLOCK = 32  # tokens

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        """An empty cache of `shape`, layers, B, K, capacity and Dh."""
        layers, streams, heads, tokens, width = shape
        blocks = -(-tokens // self.BLOCK)
        keys = torch.empty(layers, blocks, streams, heads, width, self.BLOCK, dtype=dtype)
        super().__init__(keys, torch.empty(layers, streams, heads, blocks * self.BLOCK, width, dtype=dtype))

    def append(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """As `KVCache.append`."""
        keys, values = (column[layer] for column in self.columns)
        end = self.length + key.shape[2]
        values[:, :, self.length : end] = value
        step = torch.arange(self.length, end)
        keys[step // self.BLOCK, ..., step % self.BLOCK] = key.permute(2, 0, 1, 3).to(keys.dtype)
        if self.length == 0:
            return key, value  # not rounded
        return keys.permute(1, 2, 0, 4, 3).flatten(2, 3)[:, :, :end].to(key.dtype), values[:, :, :end].to(value.dtype)

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Attention `[B, H, 1, Dh]` of `query` `[B, H, 1, Dh]` to all tokens, after the new one, `[B, K, 1, Dh]`, has
        joined them."""
        keys, values = (column[layer] for column in self.columns)
        block, place = divmod(self.length, self.BLOCK)
        keys[block, ..., place], values[:, :, self.length] = key[:, :, 0], value[:, :, 0]
        streams, heads, capacity, width = values.shape
        served = torch.arange(streams * heads, dtype=torch.int32).repeat_interleave(query.shape[1] // heads)[:, None]
        channels = served * width + torch.arange(width, dtype=torch.int32)  # [B H, Dh]
        tokens = served * capacity + torch.arange(self.length + 1, dtype=torch.int32)  # [B H, S]
        scaled = query.reshape(-1, width) * width**-0.5
        scores = torch.cat([weighted_sums(part, channels, scaled) for part in keys[: block + 1]], dim=1)
        weights = scores[:, : self.length + 1].softmax(-1, dtype=query.dtype)
        return weighted_sums(values, tokens, weights).to(query.dtype).view_as(query)

    def replace(self, streams: Tensor | slice, other: Self, rows: Tensor | slice = slice(None)) -> None:
        (keys, values), (new_keys, new_values) = self.columns, other.columns
        blocks = -(-other.length // self.BLOCK)
        keys[:, :blocks, streams] = new_keys[:, :blocks, rows]
        values[:, streams, :, : other.length] = new_values[:, rows, :, : other.length]


def weighted_sums(table: Tensor, rows: Tensor, weights: Tensor) -> Tensor:
    """Sums `[n, D]` of the `rows` `[n, m]` of a table `[..., D]`, with `weights` `[n, m]`."""
    table = table.reshape(-1, table.shape[-1])
    return F.embedding_bag(rows, table, mode="sum", per_sample_weights=weights.to(table.dtype))
