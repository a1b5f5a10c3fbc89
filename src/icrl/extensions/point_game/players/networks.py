"""Networks of players with a list of hidden layers.

B positions, N rows for points, n coordinates, A actions.
"""

from typing import Any, Literal

import torch
from pydantic import Field, ValidationError
from torch import Tensor, nn

from icrl.config.options import Options, in_words, refuse
from icrl.contracts import ConfigError

_ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh, "gelu": nn.GELU}
_MAX_WIDTH, _MAX_LAYERS = 2**14, 1000  # memory holds no more


class _Nested(Options):
    net_arch: list[dict[str, Any]]
    repeat: int = Field(1, ge=1, le=_MAX_WIDTH)


class Layer(Options):
    """A linear layer, normalization and activation; with `residual` a block of two, added to the block's input."""

    width: int = Field(ge=1, le=_MAX_WIDTH)
    normalization: Literal["none", "layer", "batch"] = "none"
    activation: Literal["relu", "tanh", "gelu"] = "relu"
    residual: bool = False
    repeat: int = Field(1, ge=1, le=_MAX_WIDTH)


def read_net_arch(key: str, written: list[dict[str, Any]]) -> list[Layer]:
    """The layers that the option `key` lists. An item is a layer with a `width`, or `{net_arch: [...]}`, and both may
    have a `repeat`. Raises `ConfigError` with the place in the list, what stands there and what is allowed."""
    layers: list[Layer] = []
    for i, item in enumerate(written):
        where, kind = f"{key}[{i}]", _Nested if "net_arch" in item else Layer
        try:
            read = kind.model_validate(item)
        except ValidationError as error:
            raise ConfigError(in_words(error, kind, item, f"{where}.")) from error
        own = [read] if isinstance(read, Layer) else read_net_arch(f"{where}.net_arch", read.net_arch)
        number = len(layers) + len(own) * read.repeat
        refuse(number > _MAX_LAYERS, f"{where}={item}: makes more than {_MAX_LAYERS} layers, which is the limit")
        layers += own * read.repeat
    return layers


class Residual(nn.Module):
    """activation(x + f(x)) with f = linear, normalization, activation, linear, normalization (He et al., 2016, arXiv
    1512.03385). A linear projection maps x to the width of the block if its own width is different."""

    def __init__(self, num_inputs: int, layer: Layer) -> None:
        super().__init__()
        self.block = nn.Sequential(*_linear(num_inputs, layer), *_linear(layer.width, layer)[:-1])
        self.shortcut = nn.Identity() if num_inputs == layer.width else nn.Linear(num_inputs, layer.width)
        self.activation = _ACTIVATIONS[layer.activation]()

    def forward(self, x: Tensor) -> Tensor:
        return self.activation(self.shortcut(x) + self.block(x))


def make_network(num_inputs: int, num_outputs: int, layers: list[Layer]) -> nn.Sequential:
    """The layers in a row, then a linear layer to the outputs, `[B, num_inputs] -> [B, num_outputs]`."""
    modules: list[nn.Module] = []
    width = num_inputs
    for layer in layers:
        modules += [Residual(width, layer)] if layer.residual else _linear(width, layer)
        width = layer.width
    return nn.Sequential(*modules, nn.Linear(width, num_outputs))


def _linear(num_inputs: int, layer: Layer) -> list[nn.Module]:
    norms = {"none": [], "layer": [nn.LayerNorm(layer.width)], "batch": [nn.BatchNorm1d(layer.width)]}
    return [nn.Linear(num_inputs, layer.width), *norms[layer.normalization], _ACTIVATIONS[layer.activation]()]


class PointValues(nn.Module):
    """Action values of the polyhedra game, `[B, N * n + k] -> [B, A]`: an observation is N points in a row, padded with
    negative numbers, and then k further inputs.

    Padding goes into the network as zeros, which are valid coordinates. So each row gets one more column, which says
    whether it is a point."""

    def __init__(self, num_points: int, dimension: int, num_others: int, num_actions: int, layers: list[Layer]) -> None:
        super().__init__()
        self._shape = (num_points, dimension)
        self.layers = make_network(num_points * (dimension + 1) + num_others, num_actions, layers)

    def forward(self, observation: Tensor) -> Tensor:
        num_points, dimension = self._shape
        points = observation[:, : num_points * dimension].unflatten(1, self._shape)
        available = points[..., :1] >= 0
        rows = torch.cat([points * available, available.to(points.dtype)], -1).flatten(1)
        return self.layers(torch.cat([rows, observation[:, num_points * dimension :]], 1))
