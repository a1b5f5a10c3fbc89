"""Caches of what a model has read, outside the model: keys and values of all tokens, or states of constant size.

B streams; `layers` counts the layers of one trunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from torch import Tensor


class TokenCache:
    """Columns `[layers, B, ...]` of the tokens so far. Their number `length`, the same in all streams, is a Python int,
    so that nothing waits for a device. Columns are written in place: a cache belongs to one rollout."""

    def __init__(self, *columns: Tensor) -> None:
        """An empty cache in `columns`."""
        self.columns, self.length = columns, 0

    def begin(self, noise: Tensor) -> None:
        """Draw what a stream keeps for its life, by the `noise` `[B]` of its first step. Here there is nothing."""

    def replace(self, streams: Tensor | slice, other: Self, rows: Tensor | slice = slice(None)) -> None:
        """Copy the context of the `rows` `[n]` of `other`, which has as many tokens, into the rows `streams` `[n]`."""
        for column, new in zip(self.columns, other.columns, strict=True):
            column[:, streams] = new[:, rows]


class KVCache(TokenCache):
    """Keys, values and further columns of all tokens so far, `[layers, B, heads, capacity, channels]` each."""

    def append(self, layer: int, *new: Tensor) -> list[Tensor]:
        """Add new tokens `[B, heads, new, channels]` to one layer of each column; returns all tokens so far. `length`
        itself is moved by the caller, after all layers have appended."""
        end = self.length + new[0].shape[2]
        for column, part in zip(self.columns, new, strict=True):
            column[layer, :, :, self.length : end] = part
        return [column[layer, :, :, :end] for column in self.columns]

    def replace(self, streams: Tensor | slice, other: Self, rows: Tensor | slice = slice(None)) -> None:
        for column, new in zip(self.columns, other.columns, strict=True):
            column[:, streams, :, : other.length] = new[:, rows, :, : other.length]


class Cache(tuple[TokenCache, ...]):
    """All that a model keeps of the steps it has read: tokens or states and, with induction, visits of each trunk."""

    def clear(self) -> None:
        """Forget every step."""
        for one in self:
            one.length = 0

    def replace(self, streams: Tensor | slice, other: Sequence[TokenCache], rows: Tensor | slice = slice(None)) -> None:
        """Copy the context of the `rows` `[n]` of `other`, which has as many steps, into the rows `streams` `[n]`."""
        for own, theirs in zip(self, other, strict=True):
            own.replace(streams, theirs, rows)
