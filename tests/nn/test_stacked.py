"""Stacked networks and their optimizer, against one network at a time."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from icrl.config.compose import load_config
from icrl.config.options import replace
from icrl.nn.networks import StackedAdam, StackedNetwork, look_up

SEEDS = torch.tensor([3, 1, 4])
SIZES = (5, 2, 7)  # observations, outputs, hidden


def config_of(**changes: Any) -> Any:
    source: Any = load_config().source
    return replace(source, **changes)


def test_outputs_are_those_of_single_networks() -> None:
    network = StackedNetwork(3, *SIZES, SEEDS)
    nn.init.normal_(network.bias)
    outputs = network()
    for index in range(3):
        for obs in range(5):
            single = network.embedding[index, obs] @ network.heads[index] + network.bias[index, 0]
            assert torch.allclose(outputs[index, obs], single, atol=1e-6)


def test_a_network_is_a_function_of_its_own_seed() -> None:
    network, alone = StackedNetwork(3, *SIZES, SEEDS), StackedNetwork(1, *SIZES, SEEDS[2:])
    for ours, theirs in zip(network.parameters(), alone.parameters(), strict=True):
        assert torch.equal(ours[2], theirs[0])
    assert (network.embedding[0] != network.embedding[1]).all() and (network.heads[0] != network.heads[1]).all()
    assert network.heads.abs().max() <= 7**-0.5 and (network.bias == 0).all()


def loss_of(network: StackedNetwork) -> Tensor:
    """The learners' losses differ a hundredfold, so that not all gradients are clipped."""
    return network().square().mean(dim=(1, 2)) * torch.tensor([0.01, 1.0, 100.0])


def test_a_step_is_that_of_adam_on_each_network_alone() -> None:
    config = config_of(adam_beta1=0.5, adam_beta2=0.8, adam_eps=0.01, max_gradient_norm=0.1)
    network = StackedNetwork(3, *SIZES, SEEDS)
    optimizer = StackedAdam(network, config)
    alone = [StackedNetwork(1, *SIZES, SEEDS[index : index + 1]) for index in range(3)]
    adams = [torch.optim.Adam(one.parameters(), betas=(0.5, 0.8), eps=0.01) for one in alone]
    for learning_rate in (0.1, 0.02, 0.3):
        norm = optimizer.descend(loss_of(network), learning_rate)
        for index, (one, adam) in enumerate(zip(alone, adams, strict=True)):
            adam.param_groups[0]["lr"] = learning_rate
            adam.zero_grad()
            (one().square().mean() * 100.0 ** (index - 1)).backward()
            expected = nn.utils.clip_grad_norm_(one.parameters(), 0.1)
            adam.step()
            assert norm[index].item() == pytest.approx(expected.item(), rel=1e-4)
            for ours, theirs in zip(network.parameters(), one.parameters(), strict=True):
                assert torch.allclose(ours[index], theirs[0], atol=1e-5)
        assert norm[0] < 0.1 < norm[2]


def test_look_up_is_indexing() -> None:
    table = torch.randn(7, requires_grad=True)
    index = torch.tensor([[3, 0], [3, 6], [3, 3]])
    found = look_up(table, index)
    assert torch.equal(found, table[index])
    found.sum().backward()
    assert table.grad is not None and table.grad.tolist() == [1, 0, 0, 4, 0, 0, 1]
