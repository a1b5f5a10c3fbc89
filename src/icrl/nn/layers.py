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


_NAMES = tuple(field.name for field in fields(Layer))


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
        allowed = ("net_arch", "repeat") if "net_arch" in item else (*_NAMES, "repeat", "net_arch")
        for name, value in item.items():
            if name not in allowed:
                raise ConfigError(f"{where}.{name}: unknown key, must be one of {', '.join(allowed)}")
            if name != "net_arch":
                _check(f"{where}.{name}", value, _CHOICES.get(name))
        if "net_arch" in item:
            own = read_net_arch(f"{where}.net_arch", item["net_arch"])
        elif "width" in item:
            own = [Layer(**{name: item[name] for name in _NAMES if name in item})]
        else:
            raise ConfigError(f"{where}.width is missing: a layer is {', '.join(_NAMES)}")
        repeat = item.get("repeat", 1)
        if len(layers) + len(own) * repeat > _MAX_LAYERS:
            raise ConfigError(f"{where}={item}: makes more than {_MAX_LAYERS} layers, the most there may be")
        layers += own * repeat
    return layers


def _check(key: str, value: Any, choices: tuple[str | bool, ...] | None) -> None:
    """Raise `ConfigError` unless `value` is one of the choices or, without any, a width or a number of repeats."""
    if choices is None:
        fits, allowed = type(value) is int and 1 <= value <= _MAX_WIDTH, f"an int >= 1 and <= {_MAX_WIDTH}"
    else:
        fits = type(value) is type(choices[0]) and value in choices
        allowed = "true or false" if choices == (False, True) else f"one of {', '.join(map(str, choices))}"
    if not fits:
        raise ConfigError(f"{key}={value}: must be {allowed}")


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
