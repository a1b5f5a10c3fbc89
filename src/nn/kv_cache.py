"""Keys and values of the tokens a transformer has seen, kept outside of the module.

Y layers, B streams, H heads, L tokens, Dh head width.
"""

import torch
from torch import Tensor


class KVCache:
    """Room for `capacity` tokens of every stream. All streams are equally long; `length` is a Python int, so that
    nothing waits for a device. `append` writes in place: a cache belongs to one rollout."""

    def __init__(
        self, num_layers: int, num_streams: int, num_heads: int, capacity: int, head_dim: int, like: Tensor
    ) -> None:
        """Empty, with the device and dtype of `like`."""
        shape = (num_layers, num_streams, num_heads, capacity, head_dim)
        self.keys = torch.empty(shape, device=like.device, dtype=like.dtype)
        self.values = torch.empty_like(self.keys)
        self.length = 0

    def append(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Add the new tokens' `[B, H, new, Dh]` in one layer; returns all so far, `[B, H, length + new, Dh]`.

        `length` itself moves once all layers have appended, by `advance`."""
        end = self.length + keys.shape[2]
        self.keys[layer, :, :, self.length : end] = keys
        self.values[layer, :, :, self.length : end] = values
        return self.keys[layer, :, :, :end], self.values[layer, :, :, :end]

    def advance(self, num_tokens: int) -> None:
        self.length += num_tokens
