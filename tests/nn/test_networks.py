"""Networks of learners: listed layers with every refusal, and stacked networks against one network at a time."""

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from icrl.app.compose import load_config
from icrl.config.options import replace
from icrl.contracts import ConfigError
from icrl.nn import networks
from icrl.nn.networks import Layer, StackedNetwork, StackedPointNetwork, make_network, read_net_arch
from icrl.spaces import discrete_spec

SEEDS, POINTS = torch.tensor([3, 1, 4]), discrete_spec(2**20, 4, (0.0, 1.0), 0, 6, "end", points=(5, 3))
SIZES = (5, 2, 7)  # observations, outputs, hidden


def test_layers_repeat_and_nest_in_order() -> None:
    inner = [{"width": 4}, {"width": 3, "residual": True, "repeat": 2, "activation": "tanh"}]
    written = [{"width": 8, "normalization": "layer"}, {"net_arch": inner, "repeat": 2}, {"net_arch": []}]
    block = [Layer(width=4), *[Layer(width=3, residual=True, repeat=2, activation="tanh")] * 2]
    assert read_net_arch("net", written) == [Layer(width=8, normalization="layer"), *block, *block]


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ([{"width": 1}, {"width": 0}], "[1].width=0: must be int >= 1 and <= 16384"),
        ([{"width": 8, "normalization": "batc"}], "[0].normalization=batc: must be one of none, layer, batch"),
        ([{"width": 8, "activation": None}], "[0].activation=None: must be one of relu, tanh, gelu"),
        ([{"width": 8, "residual": 1}], "[0].residual=1: must be true or false"),
        ([{"residual": True}], "[0].width is missing: must be int >= 1 and <= 16384"),
        ([{"width": 8, "widht": 8}], "[0].widht: there is no such option (did you mean net[0].width?)"),
        ([{"width": 1, "repeat": 600}] * 2, "[1]={'width': 1, 'repeat': 600}: makes more than 1000 layers"),
        ([{"net_arch": [], "width": 8}], "[0].width: there is no such option"),
        ([{"net_arch": [{"width": -1}]}], "[0].net_arch[0].width=-1: must be int >= 1 and <= 16384"),
    ],
)
def test_a_wrong_layer_is_refused_at_its_place(written: object, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_net_arch("net", written)
    assert str(refused.value).startswith(f"net{message}")


@pytest.mark.parametrize("normalization", ["none", "layer", "batch"])
@pytest.mark.parametrize("residual", [False, True])
def test_every_arrangement_maps_inputs_to_outputs(normalization: str, residual: bool) -> None:
    for activation, widths in itertools.product(["relu", "tanh", "gelu"], [[5], [5, 5, 3], []]):
        layer = {"normalization": normalization, "activation": activation, "residual": residual}
        network = make_network(7, 4, read_net_arch("net", [layer | {"width": width} for width in widths]))
        network(torch.randn(6, 7)).view(6, 4).sum().backward()
        assert all(parameter.grad is not None for parameter in network.parameters())


def test_a_plain_network_is_linear_relu_linear() -> None:
    network = make_network(3, 2, [Layer(width=4)])
    (w1, b1, w2, b2), x = network.parameters(), torch.randn(5, 3)
    torch.testing.assert_close(network(x), (x @ w1.T + b1).relu() @ w2.T + b2)


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


def test_outputs_are_those_of_single_networks() -> None:
    network = StackedNetwork(3, *SIZES, SEEDS)
    nn.init.normal_(network.bias)
    for index, obs in itertools.product(range(3), range(5)):
        single = network.embedding[index, obs] @ network.heads[index] + network.bias[index, 0]
        assert torch.allclose(network()[index, obs], single, atol=1e-6)


@pytest.mark.parametrize(
    "make", [lambda s: StackedNetwork(len(s), *SIZES, s), lambda s: StackedPointNetwork(POINTS, 5, 8, s)]
)
def test_a_network_is_a_function_of_its_own_seed(make) -> None:
    network, alone = make(SEEDS), make(SEEDS[2:])
    for (name, ours), theirs in zip(network.named_parameters(), alone.parameters(), strict=True):
        assert torch.equal(ours[2], theirs[0])
        assert not ours.any() if "bias" in name else (ours[0] != ours[1]).all()
        assert "heads" not in name or ours.abs().max() <= ours.shape[1] ** -0.5


def test_a_step_is_that_of_adam_on_each_network_alone() -> None:
    config = replace(load_config().source, adam_beta1=0.5, adam_beta2=0.8, adam_eps=0.01, max_gradient_norm=0.1)
    network = StackedNetwork(3, *SIZES, SEEDS)
    optimizer = networks.StackedAdam(network, config)
    sizes = torch.tensor([0.01, 1.0, 100.0])  # so that not all gradients are clipped
    alone = [StackedNetwork(1, *SIZES, SEEDS[index : index + 1]) for index in range(3)]
    adams = [torch.optim.Adam(one.parameters(), betas=(0.5, 0.8), eps=0.01) for one in alone]
    for learning_rate in (0.1, 0.02, 0.3):
        norm = optimizer.descend(network().square().mean(dim=(1, 2)) * sizes, learning_rate)
        for index, (one, adam) in enumerate(zip(alone, adams, strict=True)):
            adam.param_groups[0]["lr"] = learning_rate
            adam.zero_grad()
            (one().square().mean() * sizes[index]).backward()
            expected = nn.utils.clip_grad_norm_(one.parameters(), 0.1)
            adam.step()
            assert norm[index].item() == pytest.approx(expected.item(), rel=1e-4)
            for ours, theirs in zip(network.parameters(), one.parameters(), strict=True):
                assert torch.allclose(ours[index], theirs[0], atol=1e-5)
        assert norm[0] < 0.1 < norm[2]
