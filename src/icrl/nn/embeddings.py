"""Embeddings of observations and positions: cells of a room, sinusoids. B windows, T steps, D width."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from icrl.spaces import EnvSpec

if TYPE_CHECKING:
    from icrl.nn.gpt import GPTConfig

STD = 0.02  # initial standard deviation of embeddings
_NEAR = 3.0  # rows over which a smooth table shares by a factor e less


def table(size: int, width: int) -> nn.Embedding:
    """A new embedding table."""
    made = nn.Embedding(size, width)
    nn.init.normal_(made.weight, std=STD)
    return made


def lookup(weight: Tensor, numbers: Tensor) -> Tensor:
    """Rows of a table `[size, D]`, by numbers of any shape; or of K tables `[K, size, D]`, the first of which is for
    the first `numbers[: len(numbers) / K]`, and so on."""
    if weight.ndim == 3:
        first_rows = torch.arange(len(weight), device=numbers.device).repeat_interleave(len(numbers) // len(weight))
        numbers = numbers + (first_rows * weight.shape[1]).view(-1, *[1] * (numbers.ndim - 1))
    return F.embedding(numbers, weight.flatten(0, -2))


class SmoothTable(nn.Module):
    """A table of vectors in which near rows are alike, e_i = sum over j of b_ij w_j with

        b_ij = exp(-|i - j| / 3) / sqrt(sum over k of exp(-2 |i - k| / 3))

    for the parameters w_j `[size, D]`. So an update moves the vectors of neighbours too, and a row in which there was
    never a reward is read like those beside it."""

    share: Tensor

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.weight = table(size, width).weight
        row = torch.arange(size)
        self.register_buffer("share", F.normalize((-(row[:, None] - row).abs() / _NEAR).exp(), dim=1), persistent=False)

    def forward(self, numbers: Tensor) -> Tensor:
        """`[B, T] -> [B, T, D]`."""
        return lookup(self.share @ self.weight, numbers)


class ObsEmbedding(nn.Module):
    """One vector per observation, or the sum of vectors for its row, its column and, with several layers, its layer.

    Rows and columns are those of a grid of side `max_size`, the room in its corner (`coordinates`), in its middle
    (`smooth`), or there after training and anywhere in training (`framed`)."""

    def __init__(self, config: GPTConfig, spec: EnvSpec) -> None:
        super().__init__()
        self.width = 0 if config.obs_encoding == "cell" else spec.width
        in_corner = not self.width or config.obs_encoding == "coordinates"
        self.slack = 0 if in_corner else config.max_size - self.width
        self.framed = config.obs_encoding == "framed"
        size, width = config.max_size, config.embed_dim
        of_rows = SmoothTable if config.obs_encoding == "smooth" else table
        tables = [of_rows(size, width), of_rows(size, width)] if self.width else [table(spec.num_obs, width)]
        if self.width and spec.num_obs > self.width**2:
            tables.append(table(spec.num_obs // self.width**2, width))
        self.tables = nn.ModuleList(tables)

    def forward(self, obs: Tensor, corners: Tensor) -> Tensor:
        """`[B, T] -> [B, T, D]`, with each window's room at its place in `corners`."""
        if not self.width:
            return self.tables[0](obs)
        cell = obs % self.width**2
        row, column = corners[0] + cell // self.width, corners[1] + cell % self.width
        embedded = self.tables[0](row) + self.tables[1](column)
        return embedded if len(self.tables) == 2 else embedded + self.tables[2](obs // self.width**2)


def draw_corners(embedding: Any, num_windows: int, device: torch.device) -> Tensor:
    """Row and column of the grid at which the room of each window begins, `[2, B, 1]`: in the middle of
    the `slack`; with `framed`, in training, uniform by torch's global generator."""
    if embedding.slack and embedding.framed and embedding.training:
        return torch.randint(embedding.slack + 1, (2, num_windows, 1), device=device)
    return torch.full((2, num_windows, 1), embedding.slack // 2, device=device)


def sinusoids(width: int, position: Tensor) -> Tensor:
    """Sinusoidal position code (Vaswani et al., 2017), `[T] -> [T, D]`: channels 2 i and 2 i + 1 of position p are the
    sine and cosine of p * 10000 ** (-2 i / D), scaled to the initial size of the other embeddings."""
    frequency = 10000.0 ** (-torch.arange(0, width, 2, device=position.device) / width)
    angle = position[:, None] * frequency
    return STD * 2**0.5 * torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)[:, :width]
