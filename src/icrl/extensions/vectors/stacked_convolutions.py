"""Convolutions of images, of many learners as one module, with one group of channels for each learner.

L learners, T steps, B streams, H hidden width.
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from icrl.extensions.vectors.encoders import strides_of
from icrl.extensions.vectors.stacked_mlp import StackedMLP
from icrl.nn.networks import by_stream, stacked
from icrl.randomness import mix

_CHANNELS = 16  # of each convolution


class StackedConvolutions(nn.Module):
    """Convolutions of 3 x 3 pixels with ReLU (`strides_of`), then a linear layer with tanh, over images whose bytes are
    divided by 255. Weights are orthogonal with gain sqrt(2), and biases start at 0."""

    def __init__(self, shape: Sequence[int], hidden_size: int, seeds: Tensor) -> None:
        """`shape` is that of an image, [height, width, channels]."""
        super().__init__()
        height, width, channels = shape
        self._strides, self._num_learners = strides_of(height, width), len(seeds)
        inputs = [channels, *[_CHANNELS] * (len(self._strides) - 1)]
        for stride in self._strides:
            height, width = math.ceil(height / stride), math.ceil(width / stride)
        sizes = [*((_CHANNELS, 9 * number) for number in inputs), (_CHANNELS * height * width, hidden_size)]

        def parameters(generator: Generator) -> list[Tensor]:
            return [nn.init.orthogonal_(torch.empty(*size), 2**0.5, generator) for size in sizes]

        *kernels, last = stacked(mix(seeds, 1), parameters)  # [L, out, in * 9] each, and [L, in, out]
        self.kernels, self.linear = nn.ParameterList(kernels), StackedMLP([last])
        self.biases = nn.ParameterList(torch.zeros(len(seeds), 1, _CHANNELS) for _ in kernels)

    def forward(self, obs: Tensor) -> Tensor:
        """`[T, B, height, width, channels] -> [T, B, H]`."""
        x = obs.unflatten(1, (self._num_learners, -1)).permute(0, 2, 1, 5, 3, 4)  # [T, N, L, C, height, width]
        x = x.flatten(2, 3).flatten(0, 1).float() / 255
        for kernel, bias, stride in zip(self.kernels, self.biases, self._strides, strict=True):
            weight = kernel.unflatten(2, (-1, 3, 3)).flatten(0, 1)
            x = F.conv2d(x, weight, bias.flatten(), stride, padding=1, groups=self._num_learners).relu()
        rows = x.unflatten(1, (self._num_learners, -1)).flatten(2).transpose(0, 1)  # [L, T * N, in]
        return by_stream(self.linear(rows).tanh(), len(obs))
