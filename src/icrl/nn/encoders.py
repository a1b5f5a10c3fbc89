"""Encoders of observations, previous actions and previous rewards, chosen by their spaces.

B windows, T steps, D width, K numbers in an observation or an action.

    observations    Discrete: see `embeddings`; MultiDiscrete: a sum of tables; vectors: standardized
                    numbers through two layers; images: convolutions
    actions         Discrete: a table; MultiDiscrete: a sum of tables; Box: linear in the action scaled to [-1, 1]
    rewards         a table where they can be listed, else linear in the reward, scaled or symlog

Mean and deviation of numbers that have no bounds are those of the training histories (`Standardize`, `set_moments`).
An encoder of observations of the user's own is a module under the decorator `@encoder(name)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from gymnasium.spaces import Discrete, Space
from torch import Tensor, nn

from icrl.config.modules import registrar
from icrl.config.options import OR_ELSEWHERE, refuse
from icrl.nn.embeddings import STD, ObsEmbedding, lookup, table
from icrl.spaces import EnvSpec

if TYPE_CHECKING:
    from icrl.nn.gpt import GPTConfig

OBS_ENCODINGS = ("cell", "coordinates", "smooth", "framed")
OF_ROWS = OBS_ENCODINGS[1:]  # of the row and the column in a square room, where there is one
_OWN: dict[str, Any] = {}  # classes under the decorator `encoder`, by `model.obs_encoding`
_ELSEWHERE: list[tuple[Callable[[EnvSpec], bool], Any]] = []  # classes under the decorator `encoder_for`
_LARGEST = 10.0  # absolute value of a standardized number
_CHANNELS, _SIDE = 32, 8  # of the layers on images, and the longest side that they end with


def encoder(name: str) -> Callable[[Any], Any]:
    """Decorator of an `nn.Module` of the user's own that `model.obs_encoding=name` stands for. It is made with the spec
    of the world and the width D, and its `forward` maps observations `[B, T, *obs_shape]` to `[B, T, D]`, each step for
    itself. Raises `ConfigError` if another encoder has this name."""
    return registrar("encoder", name, _OWN, built_in=OBS_ENCODINGS)


def encoder_for(reads: Callable[[EnvSpec], bool]) -> Callable[[Any], Any]:
    """Decorator of the encoder of worlds that an extension knows, whose specs it `reads`. It is made and called like an
    `ObsEmbedding`."""

    def add(made: Any) -> Any:
        _ELSEWHERE.append((reads, made))
        return made

    return add


def check_encoding(name: str) -> None:
    """Refuse a `model.obs_encoding` that no encoder has."""
    known = (*OBS_ENCODINGS, *_OWN)
    refuse(name not in known, f"model.obs_encoding={name}: must be one of {', '.join(known)}{OR_ELSEWHERE}")


class Moments(NamedTuple):
    """Moments of the training histories: mean and standard deviation of each channel of the observations
    (`num_channels`), and the deviation of the rewards, `[1]`."""

    obs_mean: Tensor
    obs_std: Tensor
    reward_std: Tensor


class Standardize(nn.Module):
    """(x - mean) / std on the last axis, clipped to [-10, 10]. Checkpoints hold mean and std."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Tensor, std: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)

    def forward(self, x: Tensor) -> Tensor:
        return ((x - self.mean) / self.std).clamp(-_LARGEST, _LARGEST)

    def set(self, mean: Tensor, std: Tensor) -> None:
        """Take this mean, and this deviation where it is not that of a constant but for rounding."""
        self.mean.copy_(mean)
        self.std.copy_(std.masked_fill(std <= 1e-6 * mean.abs(), 1.0))


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
        self.layers = nn.Sequential(nn.Linear(size, width), nn.GELU(), _small(nn.Linear(width, width)))

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
        self.layers = nn.Sequential(*layers, nn.Flatten(), _small(nn.Linear(channels * height * width, embed_dim)))

    def forward(self, obs: Tensor) -> Tensor:
        """`[B, T, height, width, channels] -> [B, T, D]`."""
        pixels = self.standardize(obs).flatten(0, 1).movedim(-1, 1)
        return self.layers(pixels).unflatten(0, obs.shape[:2])


class Elsewhere(nn.Module):
    """Encoder of observations that lie in no room, so that their `corners` (`embeddings.draw_corners`) mean nothing."""

    slack = 0

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, obs: Tensor, corners: Tensor) -> Tensor:
        return self.encoder(obs)


class Table(nn.Module):
    """Vectors of what happened before, which is one of `size` integers; the last one is for `first`: nothing before."""

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.weight = table(size + 1, width).weight

    def forward(self, values: Tensor, first: Tensor) -> Tensor:
        """`[B, T] -> [B, T, D]`, given `first` `[B, T]` bool."""
        return lookup(self.weight, values.masked_fill(first, self.weight.shape[-2] - 1))


class RewardTable(Table):
    """Vectors of rewards that can be listed."""

    def __init__(self, spec: EnvSpec, width: int) -> None:
        super().__init__(spec.num_rewards, width)
        self._spec = spec

    def forward(self, values: Tensor, first: Tensor) -> Tensor:
        return super().forward(self._spec.reward_index(values), first)


class OrNone(nn.Module):
    """Vectors of what happened before by an `encoder`, and a learned vector for `first`: nothing before."""

    def __init__(self, encoder: nn.Module, width: int) -> None:
        super().__init__()
        self.encoder, self.none = encoder, nn.Parameter(torch.randn(width) * STD)

    def forward(self, values: Tensor, first: Tensor) -> Tensor:
        """`[B, T, ...] -> [B, T, D]`, given `first` `[B, T]` bool."""
        encoded = self.encoder(values)
        return torch.where(first[..., None], self.none.to(encoded.dtype), encoded)


class RewardLayer(nn.Module):
    """Linear layer on a reward divided by its standard deviation in the training histories."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.standardize = Standardize(torch.zeros(1), torch.ones(1))
        self.linear = _small(nn.Linear(1, width))

    def forward(self, reward: Tensor) -> Tensor:
        """`[B, T] -> [B, T, D]`."""
        x = reward[..., None].to(self.linear.weight.dtype)
        return self.linear(self.standardize(x))


def encode_obs(config: GPTConfig, spec: EnvSpec) -> nn.Module:
    """Encoder of observations `[B, T, *obs_shape]`, given the corners of their rooms: `[B, T, D]`."""
    space: Any = spec.observation_space
    if config.obs_encoding in _OWN:
        return Elsewhere(_OWN[config.obs_encoding](spec, config.embed_dim))
    for reads, make in _ELSEWHERE:
        if reads(spec):
            return make(config, spec)
    if isinstance(space, Discrete):
        return ObsEmbedding(config, spec)
    if spec.obs_dtype == torch.int64:
        return Elsewhere(SummedTables(space.nvec.tolist(), config.embed_dim))
    if is_image(space):
        return Elsewhere(ImageLayers(space.shape, config.embed_dim))
    return Elsewhere(VectorLayers(num_channels(space), config.embed_dim))


def encode_action(spec: EnvSpec, width: int) -> nn.Module:
    """Encoder of previous actions `[B, T, *action_shape]`, given where there is none: `[B, T, D]`."""
    space: Any = spec.action_space
    if isinstance(space, Discrete):
        return Table(spec.num_actions, width)
    if spec.action_dtype == torch.int64:
        return OrNone(SummedTables(space.nvec.tolist(), width), width)
    low, high = torch.as_tensor(space.low).float(), torch.as_tensor(space.high).float()
    scaled = Standardize((low + high) / 2, (high - low) / 2)
    return OrNone(nn.Sequential(scaled, _small(nn.Linear(len(low), width))), width)


def encode_reward(config: GPTConfig, spec: EnvSpec) -> nn.Module:
    """Encoder of previous rewards `[B, T]`, given where there is none: `[B, T, D]`. A table, if all are listed."""
    if spec.reward_values:
        return RewardTable(spec, config.embed_dim)
    return OrNone(RewardLayer(config.embed_dim), config.embed_dim)


def set_moments(model: nn.Module, moments: Moments) -> None:
    """Standardize the observations and the scaled rewards that `model` reads by these `moments`."""
    for module in model.modules():
        if isinstance(module, VectorLayers | ImageLayers):
            module.standardize.set(moments.obs_mean, moments.obs_std)
        elif isinstance(module, RewardLayer):
            module.standardize.set(torch.zeros_like(moments.reward_std), moments.reward_std)


def strides_of(height: int, width: int) -> list[int]:
    """Strides of convolutions of images: all but the last halve them, until their sides are at most 8 pixels long;
    there are at least two."""
    halving = [2] * max(0, math.ceil(math.log2(max(height, width) / _SIDE)))
    return [*halving, *[1] * max(1, 2 - len(halving))]


def is_image(space: Space[Any]) -> bool:
    """True for a space of images `[height, width, channels]`."""
    return str(space.dtype) == "uint8" and len(space.shape or ()) == 3


def num_channels(space: Space[Any]) -> int:
    """Numbers of an observation that have a mean and a deviation of their own: its channels, if it is an image."""
    shape = space.shape or ()
    return shape[-1] if is_image(space) else math.prod(shape)


def _small(layer: nn.Linear) -> nn.Linear:
    """`layer` with the initial weights of an embedding."""
    nn.init.normal_(layer.weight, std=STD)
    nn.init.zeros_(layer.bias)
    return layer
