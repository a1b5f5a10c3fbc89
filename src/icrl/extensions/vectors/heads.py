"""Heads of actor-critics that run a network on each observation: over vectors and images, for any actions.

T steps, B streams, L learners, A actions, K numbers in an observation, P parameters of a policy, H hidden width.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from gymnasium.spaces import Box, Discrete, Space
from torch import Generator, Tensor, nn

from icrl.config.options import refuse
from icrl.extensions.vectors.actions import ClippedGaussian
from icrl.extensions.vectors.encoders import strides_of
from icrl.extensions.vectors.stacked_mlp import StackedActorCritic, StackedMLP, by_stream
from icrl.nn.gpt import GPTConfig
from icrl.nn.heads import Categorical, Head, make_head
from icrl.nn.networks import stacked
from icrl.randomness import mix, several
from icrl.sources.heads import Heads, body, heads_for
from icrl.spaces import EnvSpec, is_image

IMPOSSIBLE = -1e30  # logit of an illegal action: its probability is 0, and p log p stays finite
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


class NetworkHeads(Heads):
    """Networks that run on each observation. A subclass sets `network` and `policy`, and gives `_both`."""

    policy: Head  # from parameters to actions

    def _both(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Parameters of the policies `[T, B, P]` and values `[T, B]` for observations `[T, B, ...]`."""
        raise NotImplementedError

    def _parameters(self, obs: Tensor) -> Tensor:
        """Parameters of the policies `[B, P]` for observations `[B, ...]`."""
        return self._both(obs[None])[0][0]

    @torch.no_grad()
    def act(self, obs: Tensor, noise: Tensor) -> Tensor:
        return self.policy.sample(self._parameters(obs), self._each(noise))

    def _each(self, noise: Tensor) -> Tensor:
        """Uniform numbers for a sample, `[B, k]`, from `noise` `[B]`."""
        number = self.policy.num_noise
        return several(noise, number) if number > 1 else noise[:, None]

    @torch.no_grad()
    def mode(self, obs: Tensor) -> Tensor:
        return self.policy.mode(self._parameters(obs))

    @torch.no_grad()
    def probabilities(self, obs: Tensor) -> Tensor:
        if not isinstance(self.policy, Categorical):
            raise TypeError("only Discrete actions have probabilities")
        return self._parameters(obs).softmax(-1)

    def evaluate_actions(self, obs: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        parameters, value = self._both(obs)
        return self.policy.log_prob(parameters, action), value, self.policy.entropy(parameters)

    @torch.no_grad()
    def value(self, obs: Tensor) -> Tensor:
        return self._both(obs)[1]


@heads_for(lambda spec: not spec.points[0])
class VectorHeads(NetworkHeads):
    """Heads over vectors: an observation is a row of numbers, whatever its shape; one of S integers is one-hot."""

    def __init__(self, spec: EnvSpec, hidden_size: int, seeds: Tensor, device: torch.device) -> None:
        self._spec = spec
        self._num_obs = spec.num_obs if isinstance(spec.plain_space, Discrete) else 0
        self._num_flags = spec.num_actions if spec.has_flags else 0
        num_inputs = self._num_obs + self._num_flags if self._num_obs else math.prod(spec.obs_shape)
        self.policy, network = self._made(spec.action_space, num_inputs, hidden_size, seeds)
        self.policy, self.network = self.policy.to(device), network.to(device)

    def _made(self, space: Space[Any], num_inputs: int, hidden_size: int, seeds: Tensor) -> tuple[Any, nn.Module]:
        """Policy and network for observations of `num_inputs` numbers."""
        is_box = isinstance(space, Box)
        policy = ClippedGaussian(space) if is_box else make_head(GPTConfig(), self._spec)
        number = policy.num_parameters
        sizes = (number // 2, number // 2) if is_box else (number, 0)  # deviations do not depend on the observation
        body = self._make_body(num_inputs, hidden_size, seeds)
        num_inputs = hidden_size + self._num_flags if body else num_inputs
        return policy, StackedActorCritic(num_inputs, *sizes, hidden_size, seeds, body)

    def _make_body(self, num_inputs: int, hidden_size: int, seeds: Tensor) -> nn.Module | None:
        """Layers from observations to the `hidden_size` inputs of the perceptrons (None: these read observations)."""
        return None

    def _rows(self, obs: Tensor) -> Tensor:
        """Inputs of the perceptrons for observations, `[T, B, ...] -> [T, B, K]`."""
        if not self._num_obs:
            return obs.flatten(2).float()
        return self._with_flags(F.one_hot(self._spec.plain(obs), self._num_obs).float(), obs)

    def _with_flags(self, rows: Tensor, obs: Tensor) -> Tensor:
        """Rows `[..., K]` that end with the flags of legal actions, if observations do."""
        return torch.cat([rows, obs[..., -self._spec.num_actions :].float()], -1) if self._spec.has_flags else rows

    def _both(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        parameters, values = self.network(self._rows(obs))
        return self._spec.legal_of(parameters, obs, IMPOSSIBLE), values

    def _parameters(self, obs: Tensor) -> Tensor:
        return self._spec.legal_of(self.network.policy(self._rows(obs[None]))[0], obs, IMPOSSIBLE)

    @torch.no_grad()
    def value(self, obs: Tensor) -> Tensor:
        return self.network.value(self._rows(obs))

    def observe(self, obs: Tensor, returns: Callable[[], Tensor]) -> None:
        self.network.observe(self._rows(obs), returns())

    def scaled(self, errors: Tensor) -> Tensor:
        return self.network.in_deviations(errors)


@body("cnn")
class ImageHeads(VectorHeads):
    """Heads over what convolutions make of images."""

    def _make_body(self, num_inputs: int, hidden_size: int, seeds: Tensor) -> nn.Module:
        space = self._spec.observation_space
        refuse(not is_image(space), f"source.body=cnn reads images, not {space}: give source.body=mlp")
        return StackedConvolutions(self._spec.obs_shape, hidden_size, seeds)

    def _rows(self, obs: Tensor) -> Tensor:
        return self.network.body(obs)

    def observe(self, obs: Tensor, returns: Callable[[], Tensor]) -> None:
        self.network.observe(None, returns())
