"""Networks are the layers that were listed, and tell padding from zeros."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from icrl.nn.layers import Layer
from icrl.nn.net_arch import PointValues, Residual, make_network


@pytest.mark.parametrize(
    ("normalization", "activation", "residual", "widths"),
    list(itertools.product(["none", "layer", "batch"], ["relu", "tanh", "gelu"], [False, True], [[5], [5, 5, 3], []])),
)
def test_every_arrangement_maps_inputs_to_outputs(
    normalization: str, activation: str, residual: bool, widths: list[int]
) -> None:
    network = make_network(7, 4, [Layer(width, normalization, activation, residual) for width in widths])
    values = network(torch.randn(6, 7))
    assert values.shape == (6, 4) and values.isfinite().all()
    values.sum().backward()
    assert all(parameter.grad is not None for parameter in network.parameters())


def test_a_plain_network_is_linear_relu_linear() -> None:
    network = make_network(3, 2, [Layer(4)])
    (w1, b1, w2, b2), x = network.parameters(), torch.randn(5, 3)
    torch.testing.assert_close(network(x), (x @ w1.T + b1).relu() @ w2.T + b2)


@pytest.mark.parametrize(("num_inputs", "projected"), [(4, False), (3, True)])
def test_a_residual_block_adds_to_its_input(num_inputs: int, projected: bool) -> None:
    block = Residual(num_inputs, Layer(4, normalization="layer", activation="tanh"))
    first, first_norm, _, second, second_norm = block.block
    x = torch.randn(5, num_inputs)
    inner = torch.tanh(F.layer_norm(x @ first.weight.T + first.bias, (4,), first_norm.weight, first_norm.bias))
    inner = F.layer_norm(inner @ second.weight.T + second.bias, (4,), second_norm.weight, second_norm.bias)
    passed = x @ block.shortcut.weight.T + block.shortcut.bias if projected else x
    torch.testing.assert_close(block(x), torch.tanh(passed + inner))
    assert isinstance(block.shortcut, nn.Linear) == projected


def test_batch_normalisation_takes_the_batch_in_training_alone() -> None:
    network, x = make_network(3, 2, [Layer(4, normalization="batch")]), 3 * torch.randn(8, 3) + 1
    alone = network.eval()(x[:1])
    torch.testing.assert_close(network(x)[:1], alone)
    assert not torch.allclose(network.train()(x)[:1], alone)


def inputs_of(values: PointValues, observation: Tensor) -> Tensor:
    """What the first layer is given."""
    seen: list[Tensor] = []
    values.layers[0].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    values(observation)
    return seen[0]


def test_padding_is_no_point_at_the_origin() -> None:
    """By hand: a row is its coordinates and 1, padding all zeros; what comes after the points goes in as it is."""
    values = PointValues(3, 2, 2, 5, [Layer(4)])
    observation = torch.tensor([[0.5, 1, 0, 0, -1, -1, 1, 0], [0, 0, -1, -1, -1, -1, 0, 1]])
    expected = [[0.5, 1, 1, 0, 0, 1, 0, 0, 0, 1, 0], [0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1]]
    assert inputs_of(values, observation).tolist() == expected
    assert values(observation).shape == (2, 5)
