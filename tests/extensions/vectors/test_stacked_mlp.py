"""Stacked actor-critics against plain modules, one learner at a time."""

import pytest
import torch
from torch import Tensor, nn

from icrl.extensions.vectors.stacked_mlp import RunningMoments, StackedActorCritic, StackedMLP
from icrl.randomness import stream_seeds

SIZES = {"num_inputs": 3, "num_outputs": 2, "num_free": 2, "hidden_size": 5}


def plain(stacked: StackedMLP, index: int) -> nn.Sequential:
    """The perceptron of learner `index`."""
    layers: list[nn.Module] = []
    for weight, bias in zip(stacked.weights, stacked.biases, strict=True):
        layers += [nn.Linear(*weight.shape[1:]), nn.Tanh()]
        with torch.no_grad():
            layers[-2].weight.copy_(weight[index].T)
            layers[-2].bias.copy_(bias[index, 0])
    return nn.Sequential(*layers[:-1])


def test_perceptrons_equal_plain_ones() -> None:
    stacked, x = StackedMLP([torch.randn(4, 3, 6), torch.randn(4, 6, 2)]), torch.randn(4, 7, 3)
    nn.init.normal_(stacked.biases[0])
    for index in range(4):
        assert torch.allclose(stacked(x)[index], plain(stacked, index)(x[index]), atol=1e-6)


def test_several_perceptrons_of_a_learner_equal_plain_ones() -> None:
    """Learner by learner; as constants they pass a gradient to their inputs alone."""
    weights, x = [torch.randn(4, 2, 3, 6), torch.randn(4, 2, 6, 2)], torch.randn(8, 7, 3, requires_grad=True)
    stacked, apart = StackedMLP(weights), [StackedMLP([w[:, which] for w in weights]) for which in range(2)]
    outputs = stacked(x)
    for which, one in enumerate(apart):
        assert torch.allclose(outputs[which::2], one(x[which::2]), atol=1e-6)
    (of_x,) = torch.autograd.grad(outputs.sum(), x)
    stacked(x, constant=True).sum().backward()
    assert torch.allclose(x.grad, of_x) and all(parameter.grad is None for parameter in stacked.parameters())


def test_moments_are_those_of_all_samples() -> None:
    """Whatever the sizes of the batches, learner by learner, also far from 0; a constant column stays finite."""
    moments, batches = RunningMoments(2, 3), [torch.randn(2, size, 3) * 5 + 100 for size in (1, 7, 300, 2)]
    for batch in batches:
        batch[..., 2] = -4.0
        moments.add(batch)
    seen = torch.cat(batches, dim=1)
    variance, mean = torch.var_mean(seen.double(), dim=1, correction=0, keepdim=True)
    assert torch.allclose(moments.mean.double(), mean, rtol=1e-5)
    assert torch.allclose(moments.variance.double(), variance, rtol=1e-4, atol=1e-8)
    normalised = moments.normalised(seen)
    assert normalised[..., :2].std(dim=1).tolist() == [[pytest.approx(1, abs=0.01)] * 2] * 2
    assert not normalised[..., 2].any()
    assert moments.normalised(torch.full((2, 1, 3), 1e30)).max() == 10


def test_before_any_sample_nothing_is_changed() -> None:
    samples = torch.randn(2, 4, 3)
    assert torch.allclose(RunningMoments(2, 3).normalised(samples), samples)


def network(num_learners: int = 2) -> StackedActorCritic:
    return StackedActorCritic(**SIZES, seeds=stream_seeds(0, num_learners))


def outputs_of(one: StackedActorCritic, index: int, obs: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs of learner `index` for its own observations `[N, K]`, step by step as the docstrings say."""
    x = (obs - one.observed.mean[index, 0]) / one.observed.variance[index, 0].sqrt()
    value = plain(one.critic, index)(x)[:, 0] * one.returns.variance[index, 0].sqrt() + one.returns.mean[index, 0]
    assert one.free is not None
    return torch.cat([plain(one.actor, index)(x), one.free[index].expand(len(x), -1)], dim=1), value


def test_an_actor_critic_equals_its_parts() -> None:
    """Streams are dealt out learner by learner; values are in the unit of returns."""
    one = network()
    one.observe(torch.randn(6, 4, 3) * 3 + 1, torch.randn(6, 4) * 50 - 20)
    nn.init.normal_(one.free)
    obs = torch.randn(5, 4, 3)
    policy, value = one(obs)
    for index in range(2):
        own = slice(2 * index, 2 * index + 2)
        expected = outputs_of(one, index, obs[:, own].flatten(0, 1))
        assert torch.allclose(policy[:, own].flatten(0, 1), expected[0], atol=1e-5)
        assert torch.allclose(value[:, own].flatten(), expected[1], rtol=1e-4, atol=1e-4)
    assert torch.equal(one.policy(obs), policy) and torch.equal(one.value(obs), value)
    deviation = one.returns.variance.sqrt().flatten().repeat_interleave(2)
    assert torch.allclose(one.in_deviations(torch.ones(5, 4)), 1 / deviation.expand(5, 4))


def test_initial_parameters_are_a_function_of_the_learner_s_seed() -> None:
    """Orthogonal, and the policy begins almost the same for all observations."""
    three, two = network(3), network(2)
    for (_, ours), (_, theirs) in zip(two.named_parameters(), three.named_parameters(), strict=True):
        assert torch.equal(ours, theirs[:2])
    square = three.actor.weights[1]
    assert torch.allclose(square.mT @ square, 2 * torch.eye(5).expand(3, 5, 5), atol=1e-5)
    assert not torch.allclose(square[0], square[1])
    assert three.policy(torch.randn(9, 3, 3)).abs().max() < 0.1
