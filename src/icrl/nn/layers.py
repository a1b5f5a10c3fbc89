"""Networks as lists of hidden layers: read from an option, built as modules, and used for points and action values.

B positions, N rows for points, n coordinates, A actions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn

from icrl.contracts import ConfigError

ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh, "gelu": nn.GELU}
_MAX_WIDTH, _MAX_LAYERS = 2**14, 1000  # memory holds no more
_CHOICES = {"normalization": ("none", "layer", "batch"), "activation": tuple(ACTIVATIONS), "residual": (False, True)}


@dataclass(frozen=True)
class Layer:
    """A linear layer, normalization and activation; with `residual` a block of two, added to the block's input."""

    width: int
    normalization: str = "none"
    activation: str = "relu"
    residual: bool = False


def read_net_arch(key: str, written: Any) -> list[Layer]:
    """The layers that the option `key` lists. An item is a layer with a `width`, or `{net_arch: [...]}`, and both may
    have a `repeat`. Raises `ConfigError` with the place in the list, what stands there and what is allowed."""
    if not isinstance(written, list):
        raise ConfigError(f"{key}={written}: must be a list of layers")
    layers: list[Layer] = []
    for i, item in enumerate(written):
        where = f"{key}[{i}]"
        if not isinstance(item, Mapping):
            raise ConfigError(f"{where}={item}: must be a mapping such as {{width: 64}}")
        parts = dict(item)
        repeat = _positive(f"{where}.repeat", parts.pop("repeat", 1))
        if "net_arch" in parts:
            own = read_net_arch(f"{where}.net_arch", parts.pop("net_arch"))
            _check_keys(where, parts, ())
        else:
            own = [_layer(where, parts)]
        if len(layers) + len(own) * repeat > _MAX_LAYERS:
            raise ConfigError(f"{where}={item}: makes more than {_MAX_LAYERS} layers, the most there may be")
        layers += own * repeat
    return layers


def _layer(where: str, parts: dict[str, Any]) -> Layer:
    names = tuple(field.name for field in fields(Layer))
    _check_keys(where, parts, names)
    if "width" not in parts:
        raise ConfigError(f"{where}.width is missing: a layer is {', '.join(names)}")
    for key, choices in _CHOICES.items():
        value = parts.get(key, choices[0])
        if value not in choices or type(value) is not type(choices[0]):
            allowed = "true or false" if key == "residual" else f"one of {', '.join(map(str, choices))}"
            raise ConfigError(f"{where}.{key}={value}: must be {allowed}")
    _positive(f"{where}.width", parts["width"])
    return Layer(**parts)


def _check_keys(where: str, parts: dict[str, Any], names: tuple[str, ...]) -> None:
    if unknown := [key for key in parts if key not in names]:
        allowed = (*names, "repeat", "net_arch") if names else ("net_arch", "repeat")
        raise ConfigError(f"{where}.{unknown[0]}: unknown key, must be one of {', '.join(allowed)}")


def _positive(key: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= _MAX_WIDTH:
        raise ConfigError(f"{key}={value}: must be an int >= 1 and <= {_MAX_WIDTH}")
    return value


class Residual(nn.Module):
    """activation(x + f(x)) with f = linear, normalization, activation, linear, normalization (He et al., 2016, arXiv
    1512.03385). A linear projection maps x to the width of the block if its own width is different."""

    def __init__(self, num_inputs: int, layer: Layer) -> None:
        super().__init__()
        self.block = nn.Sequential(*_linear(num_inputs, layer), *_linear(layer.width, layer)[:-1])
        self.shortcut = nn.Identity() if num_inputs == layer.width else nn.Linear(num_inputs, layer.width)
        self.activation = ACTIVATIONS[layer.activation]()

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
    return [nn.Linear(num_inputs, layer.width), *norms[layer.normalization], ACTIVATIONS[layer.activation]()]


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
