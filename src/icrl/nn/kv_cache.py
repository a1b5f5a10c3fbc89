"""Key-value caches of a context, kept outside the model.

Y layers, B streams, H heads, L tokens, T steps, Dh head width.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class KVCache:
    """Keys and values of up to `capacity` tokens of every stream. All streams have the same length. `length` is a
    Python int, so that nothing waits for a device. `append` writes in place: a cache belongs to one rollout."""

    def __init__(
        self, num_layers: int, num_streams: int, num_heads: int, capacity: int, head_dim: int, like: Tensor
    ) -> None:
        """An empty cache with the device and dtype of `like`."""
        shape = (num_layers, num_streams, num_heads, capacity, head_dim)
        self.keys = torch.empty(shape, device=like.device, dtype=like.dtype)
        self.values = torch.empty_like(self.keys)
        self.length = 0

    def append(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add new tokens `[B, H, new, Dh]` to one layer; returns all tokens so far, `[B, H, length + new, Dh]`.

        `length` itself moves by `advance`, after all layers have appended."""
        end = self.length + keys.shape[2]
        self.keys[layer, :, :, self.length : end] = keys
        self.values[layer, :, :, self.length : end] = values
        return self.keys[layer, :, :, :end], self.values[layer, :, :, :end]

    def advance(self, num_tokens: int) -> None:
        self.length += num_tokens


class VisitCache(KVCache):
    """Cache of an induction layer: one layer, one token per step, and the observations that were visited."""

    def __init__(self, num_streams: int, num_heads: int, capacity: int, head_dim: int, like: Tensor) -> None:
        super().__init__(1, num_streams, num_heads, capacity, head_dim, like)
        self.visited = torch.empty(num_streams, capacity, dtype=torch.long, device=like.device)

    def append_visited(self, visited: Tensor) -> Tensor:
        """Add the new steps' observations `[B, new]`; returns all so far, `[B, length + new]`."""
        end = self.length + visited.shape[1]
        self.visited[:, self.length : end] = visited
        return self.visited[:, :end]


class ContextCache(NamedTuple):
    """Everything a GPT keeps of the steps it has read: tokens and, with an induction layer, visits."""

    tokens: KVCache
    visits: VisitCache | None

    def clear(self) -> None:
        """Forget every step."""
        self.tokens.length = 0
        if self.visits:
            self.visits.length = 0

    def replace(self, streams: Tensor, other: "ContextCache") -> None:
        """Copy the context of `other`, which has as many steps, into the rows `streams` `[n]`."""
        for own, theirs in ((self.tokens, other.tokens), (self.visits, other.visits)):
            if own and theirs:
                own.keys[:, streams, :, : theirs.length] = theirs.keys[:, :, :, : theirs.length]
                own.values[:, streams, :, : theirs.length] = theirs.values[:, :, :, : theirs.length]
        if self.visits and other.visits:
            self.visits.visited[streams, : other.visits.length] = other.visits.visited[:, : other.visits.length]
