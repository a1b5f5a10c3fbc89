"""Bodies of learners: layers between observations and the perceptrons of `stacked_mlp`, of many learners as one module.

L learners, N rows for each, T steps, B = L * N streams, K numbers in an observation, H hidden width.

`StackedGRU` has a memory, for worlds where an observation does not show the state. It is a gated recurrent unit (Cho et
al., 2014, arXiv 1406.1078; in PyTorch's form, with the reset gate behind the product) on embedded observations x:

    e = tanh(W x + b),    r, z = sigmoid of linear in e and h,    n = tanh(W_n e + b_n + r * (U_n h + c_n))
    h' = (1 - z) * n + z * h,    h = 0 at the start of an episode

`StackedConvolutions` reads images, with one group of channels for each learner.
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from icrl.nn.encoders import strides_of
from icrl.nn.networks import by_learner, by_stream, stacked
from icrl.nn.stacked_mlp import RunningMoments, StackedMLP
from icrl.randomness import mix

_CHANNELS = 16  # of each convolution


class StackedGRU(nn.Module):
    """Gated recurrent units over normalised vectors. Weights are orthogonal, each gate's own, and biases start at 0."""

    def __init__(self, num_inputs: int, hidden_size: int, seeds: Tensor) -> None:
        super().__init__()

        def parameters(generator: Generator) -> list[Tensor]:
            def orthogonal(before: int, number: int = 1) -> Tensor:
                each = [torch.empty(before, hidden_size) for _ in range(number)]
                return torch.cat([nn.init.orthogonal_(one, generator=generator) for one in each], 1)

            return [orthogonal(num_inputs), orthogonal(hidden_size, 3), orthogonal(hidden_size, 3)]

        *inputs, recurrent = stacked(mix(seeds, 1), parameters)  # other numbers than those of the perceptrons behind
        self.hidden_size, self._num_learners = hidden_size, len(seeds)
        self.inputs, self.recurrent = StackedMLP(inputs), StackedMLP([recurrent])
        self.observed = RunningMoments(len(seeds), num_inputs)

    def forward(self, obs: Tensor, fresh: Tensor, state: Tensor) -> Tensor:
        """States `[T, B, H]` after each of the observations `[T, B, K]`, from the `state` `[B, H]` before the first;
        `fresh` `[T, B]` marks the first observations of episodes."""
        gates = self._gates(obs).unflatten(1, (len(obs), -1)).unbind(1)  # [L, N, 3 H] each
        kept = (~fresh).unflatten(1, (self._num_learners, -1)).float()[..., None]
        now, states = state.unflatten(0, (self._num_learners, -1)), list[Tensor]()
        for gate, keep in zip(gates, kept, strict=True):
            now = self._next(gate, now * keep)
            states.append(now)
        return torch.stack(states).flatten(1, 2)

    def after(self, states: Tensor, obs: Tensor) -> Tensor:
        """States `[T, B, H]` after one further observation each, `[T, B, K]`, of the same episodes."""
        return by_stream(self._next(self._gates(obs), by_learner(states, self._num_learners)), len(obs))

    def observe(self, obs: Tensor) -> None:
        """Take observations `[T, B, K]` into their running means and deviations."""
        self.observed.add(by_learner(obs, self._num_learners))

    def _gates(self, obs: Tensor) -> Tensor:
        """Share of the observations `[T, B, K]` in the gates, `[L, T * N, 3 H]`."""
        return self.inputs(self.observed.normalised(by_learner(obs, self._num_learners)))

    def _next(self, gates: Tensor, state: Tensor) -> Tensor:
        (reset, keep, new), (own_reset, own_keep, own_new) = gates.chunk(3, -1), self.recurrent(state).chunk(3, -1)
        keep = (keep + own_keep).sigmoid()
        return torch.lerp((new + (reset + own_reset).sigmoid() * own_new).tanh(), state, keep)


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
