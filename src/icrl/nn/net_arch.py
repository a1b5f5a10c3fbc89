"""Networks as a configuration lists them (`net_layers.py`), and the values of actions in the polyhedra game.

B positions, N rows for points, n coordinates, A actions, F features.
"""

import torch
from torch import Tensor, nn

from icrl.nn.layers import Layer

_ACTIVATIONS = {"relu": nn.ReLU, "tanh": nn.Tanh, "gelu": nn.GELU}


class Residual(nn.Module):
    """activation(x + f(x)) with f = linear, normalisation, activation, linear, normalisation (He et al., 2016, arXiv
    1512.03385); x goes through a linear projection where its width is another."""

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
    activation = _ACTIVATIONS[layer.activation]()
    return [nn.Linear(num_inputs, layer.width), *norms[layer.normalization], activation]


class PointValues(nn.Module):
    """Values of all actions, `[B, N * n + k] -> [B, A]`: an observation is N points in a row, padded with negative
    numbers, and then k further inputs.

    The network gets a column more for each row, which says whether there is a point: padding goes in as zeros, and
    these are coordinates like any other."""

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
