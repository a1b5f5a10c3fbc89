"""Networks of players: listed layers with every refusal, residual blocks and padding by hand."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from icrl.contracts import ConfigError
from icrl.extensions.point_game.players import networks
from icrl.extensions.point_game.players.networks import Layer, make_network, read_net_arch


def test_layers_repeat_and_nest_in_order() -> None:
    inner = [{"width": 4}, {"width": 3, "residual": True, "repeat": 2, "activation": "tanh"}]
    written = [{"width": 8, "normalization": "layer"}, {"net_arch": inner, "repeat": 2}, {"net_arch": []}]
    block = [Layer(width=4), *[Layer(width=3, residual=True, repeat=2, activation="tanh")] * 2]
    assert read_net_arch("net", written) == [Layer(width=8, normalization="layer"), *block, *block]


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ([{"width": 1}, {"width": 0}], "[1].width=0: must be int >= 1 and <= 16384"),
        ([{"width": 8, "activation": None}], "[0].activation=None: must be one of relu, tanh, gelu"),
        ([{"residual": True}], "[0].width is missing: must be int >= 1 and <= 16384"),
        ([{"width": 8, "widht": 8}], "[0].widht: there is no such option (did you mean net[0].width?)"),
        ([{"width": 1, "repeat": 600}] * 2, "[1]={'width': 1, 'repeat': 600}: makes more than 1000 layers"),
        ([{"net_arch": [{"width": -1}]}], "[0].net_arch[0].width=-1: must be int >= 1 and <= 16384"),
    ],
)
def test_a_wrong_layer_is_refused_at_its_place(written: object, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_net_arch("net", written)
    assert str(refused.value).startswith(f"net{message}")


def test_every_arrangement_maps_inputs_to_outputs() -> None:
    options = (["none", "layer", "batch"], [False, True], ["relu", "tanh", "gelu"], [[5, 5, 3], []])
    for normalization, residual, activation, widths in itertools.product(*options):
        layer = {"normalization": normalization, "activation": activation, "residual": residual}
        network = make_network(7, 4, read_net_arch("net", [layer | {"width": width} for width in widths]))
        network(torch.randn(6, 7)).view(6, 4).sum().backward()
        assert all(parameter.grad is not None for parameter in network.parameters())


@pytest.mark.parametrize(("num_inputs", "projected"), [(4, False), (3, True)])
def test_a_residual_block_adds_to_its_input(num_inputs: int, projected: bool) -> None:
    block = networks.Residual(num_inputs, Layer(width=4, normalization="layer", activation="tanh"))
    first, first_norm, _, second, second_norm = block.block
    x = torch.randn(5, num_inputs)
    inner = torch.tanh(F.layer_norm(x @ first.weight.T + first.bias, (4,), first_norm.weight, first_norm.bias))
    inner = F.layer_norm(inner @ second.weight.T + second.bias, (4,), second_norm.weight, second_norm.bias)
    passed = x @ block.shortcut.weight.T + block.shortcut.bias if projected else x
    torch.testing.assert_close(block(x), torch.tanh(passed + inner))
    assert isinstance(block.shortcut, nn.Linear) == projected


def test_padding_is_no_point_at_the_origin() -> None:
    """By hand: a row is its coordinates and 1, padding is all zeros, further inputs stay as they are."""
    values = networks.PointValues(3, 2, 2, 5, [Layer(width=4)])
    observation = torch.tensor([[0.5, 1, 0, 0, -1, -1, 1, 0], [0, 0, -1, -1, -1, -1, 0, 1]])
    seen = []
    values.layers[0].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].tolist()))
    assert values(observation).shape == (2, 5)
    assert seen == [[[0.5, 1, 1, 0, 0, 1, 0, 0, 0, 1, 0], [0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1]]]
