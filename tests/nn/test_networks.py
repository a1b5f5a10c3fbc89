"""Networks of many learners as one module against one network at a time."""

import itertools

import pytest
import torch
from torch import nn

from icrl.app.compose import load_config
from icrl.config.options import replace
from icrl.nn import networks
from icrl.nn.networks import StackedNetwork

SEEDS = torch.tensor([3, 1, 4])
SIZES = (5, 2, 7)  # observations, outputs, hidden


def test_outputs_are_those_of_single_networks() -> None:
    network = StackedNetwork(3, *SIZES, SEEDS)
    nn.init.normal_(network.bias)
    for index, obs in itertools.product(range(3), range(5)):
        single = network.embedding[index, obs] @ network.heads[index] + network.bias[index, 0]
        assert torch.allclose(network()[index, obs], single, atol=1e-6)


def test_a_network_is_a_function_of_its_own_seed() -> None:
    network, alone = StackedNetwork(3, *SIZES, SEEDS), StackedNetwork(1, *SIZES, SEEDS[2:])
    for (name, ours), theirs in zip(network.named_parameters(), alone.parameters(), strict=True):
        assert torch.equal(ours[2], theirs[0])
        assert not ours.any() if "bias" in name else (ours[0] != ours[1]).all()
        assert "heads" not in name or ours.abs().max() <= ours.shape[1] ** -0.5


def test_a_step_is_that_of_adam_on_each_network_alone() -> None:
    config = replace(load_config().source, max_gradient_norm=0.1)
    network = StackedNetwork(3, *SIZES, SEEDS)
    optimizer = networks.StackedAdam(network, config.max_gradient_norm)
    sizes = torch.tensor([0.01, 1.0, 100.0])  # so that not all gradients are clipped
    alone = [StackedNetwork(1, *SIZES, SEEDS[index : index + 1]) for index in range(3)]
    adams = [torch.optim.Adam(one.parameters(), betas=(0.9, 0.999), eps=1e-6) for one in alone]
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
