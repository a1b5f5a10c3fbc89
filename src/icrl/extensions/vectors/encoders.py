"""Encoders of observations of several numbers, for the model.

B windows, T steps, D width, K numbers in an observation.

    MultiDiscrete    a sum of tables
    vectors          standardized numbers through two layers
    images           convolutions
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from icrl.nn.encoders import Elsewhere, Standardize, encoder_for, small, table
from icrl.spaces import EnvSpec, is_image, num_channels

if TYPE_CHECKING:
    from icrl.nn.gpt import GPTConfig

_CHANNELS, _SIDE = 32, 8  # of the layers on images, and the longest side that they end with


class SummedTables(nn.Module):
    """A table of vectors for each of K integers, whose vectors are summed; number i lies in [0, sizes[i])."""

    first_rows: Tensor

    def __init__(self, sizes: Sequence[int], width: int) -> None:
        super().__init__()
        self.table = table(sum(sizes), width)
        self.register_buffer("first_rows", torch.tensor([0, *sizes[:-1]]).cumsum(0), persistent=False)

    def forward(self, numbers: Tensor) -> Tensor:
        """`[B, T, K] -> [B, T, D]`."""
        return self.table(numbers + self.first_rows).sum(-2)


class VectorLayers(nn.Module):
    """Standardized numbers through two linear layers with a GELU between them."""

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.standardize = Standardize(torch.zeros(size), torch.ones(size))
        self.layers = nn.Sequential(nn.Linear(size, width), nn.GELU(), small(nn.Linear(width, width)))

    def forward(self, obs: Tensor) -> Tensor:
        """`[B, T, *obs_shape] -> [B, T, D]`."""
        return self.layers(self.standardize(obs.flatten(2)))


class ImageLayers(nn.Module):
    """Standardized channels through convolutions of 3 x 3 pixels with ReLU (`strides_of`), then a linear layer."""

    def __init__(self, shape: Sequence[int], embed_dim: int) -> None:
        super().__init__()
        height, width, channels = shape
        self.standardize = Standardize(torch.zeros(channels), torch.full((channels,), 255.0))
        layers: list[nn.Module] = []
        for stride in strides_of(height, width):
            layers += [nn.Conv2d(channels, _CHANNELS, 3, stride, padding=1), nn.ReLU()]
            height, width, channels = math.ceil(height / stride), math.ceil(width / stride), _CHANNELS
        self.layers = nn.Sequential(*layers, nn.Flatten(), small(nn.Linear(channels * height * width, embed_dim)))

    def forward(self, obs: Tensor) -> Tensor:
        """`[B, T, height, width, channels] -> [B, T, D]`."""
        pixels = self.standardize(obs).flatten(0, 1).movedim(-1, 1)
        return self.layers(pixels).unflatten(0, obs.shape[:2])


@encoder_for(lambda spec: not spec.points[0])
def encode_obs(config: GPTConfig, spec: EnvSpec) -> nn.Module:
    """Encoder of observations `[B, T, *obs_shape]`: `[B, T, D]`."""
    space: Any = spec.observation_space
    if spec.obs_dtype == torch.int64:
        return Elsewhere(SummedTables(space.nvec.tolist(), config.embed_dim))
    if is_image(space):
        return Elsewhere(ImageLayers(space.shape, config.embed_dim))
    return Elsewhere(VectorLayers(num_channels(space), config.embed_dim))


def strides_of(height: int, width: int) -> list[int]:
    """Strides of convolutions of images: all but the last halve them, until their sides are at most 8 pixels long;
    there are at least two."""
    halving = [2] * max(0, math.ceil(math.log2(max(height, width) / _SIDE)))
    return [*halving, *[1] * max(1, 2 - len(halving))]
