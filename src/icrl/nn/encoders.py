"""Encoders of observations, previous actions and previous rewards: tables where these can be listed.

B windows, T steps, D width.

A reward that cannot be listed is read by a linear layer. Mean and deviation of numbers that have no bounds are those of
the training histories (`Standardize`, `set_moments`). Observations in other spaces have encoders in extensions; one of
the user's own is a module under the decorator `@encoder(name)`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.nn.functional as F
from gymnasium.spaces import Discrete
from torch import Tensor, nn

from icrl.config.modules import BySpec, registrar
from icrl.config.options import refuse
from icrl.nn.networks import STD
from icrl.spaces import EnvSpec

if TYPE_CHECKING:
    from icrl.nn.gpt import GPTConfig

OBS_ENCODINGS = ("cell", "coordinates", "smooth", "framed")
OF_ROWS = OBS_ENCODINGS[1:]  # of the row and the column in a square room, where there is one
OWN: dict[str, Any] = {}  # classes under the decorator `encoder`, by `model.obs_encoding`
encoder_for = BySpec("encoder")  # of classes that are made and called like an `ObsEmbedding`
_LARGEST = 10.0  # absolute value of a standardized number
_NEAR = 3.0  # rows over which a smooth table shares by a factor e less


class _Rows(nn.Embedding):
    def forward(self, input: Tensor) -> Tensor:
        return rows_of(self.weight, input)


def rows_of(table: Tensor, numbers: Tensor) -> Tensor:
    """Rows `[..., D]` of a table `[size, D]`, on a CPU with the bits of `F.embedding` and a gradient in a third of the
    time; on a GPU the bits of that gradient would vary."""
    if table.is_cpu:
        return table.index_select(0, numbers.flatten()).unflatten(0, numbers.shape)
    return F.embedding(numbers, table)


def table(size: int, width: int) -> nn.Embedding:
    """A new embedding table."""
    made = _Rows(size, width)
    nn.init.normal_(made.weight, std=STD)
    return made


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
        return rows_of(self.share @ self.weight, numbers)


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


def encoder(name: str) -> Callable[[Any], Any]:
    """Decorator of an `nn.Module` that `model.obs_encoding=name` chooses. It is constructed with the spec of the world
    and the width D, and its `forward` maps observations `[B, T, *obs_shape]` to `[B, T, D]`, each step by itself.
    Raises `ConfigError` if another encoder has this name."""
    return registrar("encoder", name, OWN, built_in=OBS_ENCODINGS)


def obs_encoder(config: GPTConfig, spec: EnvSpec) -> Callable[[GPTConfig, EnvSpec], nn.Module]:
    """Maker, with these arguments, of the encoder of observations `[B, T, *obs_shape]`, given the corners of their
    rooms: `[B, T, D]`. Raises `ConfigError` if `model.obs_encoding` does not fit the observations."""
    space, encoding = spec.observation_space, config.obs_encoding
    if own := OWN.get(encoding):
        return lambda config, spec: Elsewhere(own(spec, config.embed_dim))
    if isinstance(space, Discrete):
        large = f"model.max_size={config.max_size} is less than the side of this world's rooms"
        is_large = encoding in OF_ROWS and spec.width > config.max_size
        refuse(is_large, f"{large}: give model.max_size={spec.width}, or model.obs_encoding=cell")
        return ObsEmbedding
    needs = f"needs Discrete observations, and these are in {space}: give model.obs_encoding=coordinates"
    refuse(encoding != "coordinates" and not spec.points[0], f"model.obs_encoding={encoding} {needs}")
    return encoder_for.of(spec)


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
        """Set mean and deviation; a deviation that is only the rounding error of a constant is taken as 1."""
        self.mean.copy_(mean)
        self.std.copy_(std.masked_fill(std <= 1e-6 * mean.abs(), 1.0))


class Elsewhere(nn.Module):
    """Encoder of observations that lie in no room, so that their `corners` (`draw_corners`) mean nothing."""

    slack = 0

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, obs: Tensor, corners: Tensor) -> Tensor:
        return self.encoder(obs)


class Table(nn.Module):
    """Vectors of what happened before, one of `size` values that `index` numbers; the last is for `first`: nothing."""

    def __init__(self, size: int, width: int, index: Callable[[Tensor], Tensor] = Tensor.long) -> None:
        super().__init__()
        self.weight, self.size, self._index = table(size + 1, width).weight, size, index

    def forward(self, values: Tensor, first: Tensor) -> Tensor:
        """`[B, T] -> [B, T, D]`, given `first` `[B, T]` bool."""
        return rows_of(self.weight, self.rows(values, first))

    def rows(self, values: Tensor, first: Tensor) -> Tensor:
        """Rows of `weight`, `[B, T]`."""
        return self._index(values).masked_fill(first, self.size)


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
        self.linear = small(nn.Linear(1, width))

    def forward(self, reward: Tensor) -> Tensor:
        """`[B, T] -> [B, T, D]`."""
        x = reward[..., None].to(self.linear.weight.dtype)
        return self.linear(self.standardize(x))


def encode_reward(config: GPTConfig, spec: EnvSpec) -> nn.Module:
    """Encoder of previous rewards `[B, T]`, given where there is none: `[B, T, D]`. A table, if all are listed."""
    if spec.reward_values:
        return Table(spec.num_rewards, config.embed_dim, spec.reward_index)
    return OrNone(RewardLayer(config.embed_dim), config.embed_dim)


def set_moments(model: nn.Module, moments: Moments) -> None:
    """Standardize the rewards that `model` reads by these `moments`, and observations in the layers `standardize`."""
    for module in model.modules():
        if isinstance(module, RewardLayer):
            module.standardize.set(torch.zeros_like(moments.reward_std), moments.reward_std)
        elif isinstance(layer := getattr(module, "standardize", None), Standardize):
            layer.set(moments.obs_mean, moments.obs_std)


def small(layer: nn.Linear) -> nn.Linear:
    """`layer` with the initial weights of an embedding."""
    nn.init.normal_(layer.weight, std=STD)
    nn.init.zeros_(layer.bias)
    return layer
