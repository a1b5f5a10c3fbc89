"""The clipped Gaussian against the mathematics of single numbers."""

import math

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box

from icrl.extensions.vectors.actions import ClippedGaussian

SPACE = Box(np.array([-1.0, 0.5, -math.inf], np.float32), np.array([3.0, 0.75, 2.0], np.float32))
MIDDLE, UNIT = (1.0, 0.625, 0.0), (2.0, 0.125, 1.0)  # a number with one bound keeps its own unit
FREE = Box(-np.inf, np.inf, (2,))


def below(z: float) -> float:
    """Distribution function of the standard normal."""
    return 0.5 * math.erfc(-z / math.sqrt(2))


def scalar_log_prob(mean: list[float], log_std: list[float], action: list[float]) -> float:
    """One number after the other."""
    total = 0.0
    for i, a in enumerate(action):
        z = ((a - MIDDLE[i]) / UNIT[i] - mean[i]) / math.exp(log_std[i])
        if a == SPACE.low[i]:
            total += math.log(below(z))
        elif a == SPACE.high[i]:
            total += math.log(below(-z))
        else:
            total += -0.5 * z * z - log_std[i] - 0.5 * math.log(2 * math.pi)
    return total


def test_log_probabilities_equal_those_of_single_numbers() -> None:
    policy, (mean, log_std) = ClippedGaussian(SPACE), ([0.3, -0.4, 0.9], [0.1, -0.5, 0.4])
    parameters = torch.tensor(mean + log_std)
    for action in ([0.0, 0.6, -5.0], [-1.0, 0.75, 2.0], [3.0, 0.5, 1.9], [2.9, 0.75, -0.1]):
        expected = scalar_log_prob(mean, log_std, action)
        assert policy.log_prob(parameters, torch.tensor(action)).item() == pytest.approx(expected, abs=1e-5)


def test_the_likelihood_of_all_actions_is_one() -> None:
    """Density between the bounds, in the policy's units, and the masses at both."""
    policy, parameters = ClippedGaussian(Box(-2.0, 2.0, (1,))), torch.tensor([0.4, -0.2])
    grid = torch.linspace(-2, 2, 20002)[1:-1, None]
    inside = policy.log_prob(parameters.expand(len(grid), 2), grid).exp().mean().item() * 2  # 2 units wide
    ends = policy.log_prob(parameters.expand(2, 2), torch.tensor([[-2.0], [2.0]])).exp().sum().item()
    assert inside + ends == pytest.approx(1.0, abs=1e-3) and ends > 0.1


def test_without_bounds_it_is_the_normal_distribution() -> None:
    policy, parameters = ClippedGaussian(FREE), torch.tensor([[0.3, -2.0, 0.5, -1.0], [7.0, 0.0, -0.3, 0.2]])
    plain = torch.distributions.Normal(parameters[:, :2], parameters[:, 2:].exp())
    action = torch.tensor([[0.5, -2.5], [6.0, 40.0]])
    assert torch.allclose(policy.log_prob(parameters, action), plain.log_prob(action).sum(-1), rtol=1e-5)
    assert torch.allclose(policy.entropy(parameters), plain.entropy().sum(-1))


def test_samples_follow_the_likelihood_and_lie_in_the_box() -> None:
    """An even grid of noise: shares at the bounds and moments between them; the mode is the clipped mean."""
    policy, count = ClippedGaussian(Box(-2.0, 2.0, (1,))), 40000
    parameters = torch.tensor([[0.4, -0.2]]).expand(count, 2)
    noise = torch.arange(count)[:, None] / count
    action = policy.sample(parameters, noise)
    assert action.shape == (count, 1) and action.dtype == torch.float32
    for bound in (-2.0, 2.0):
        mass = policy.log_prob(parameters[0], torch.tensor([bound])).exp()
        assert torch.allclose((action == bound).float().mean(), mass, atol=1e-3)
    assert action.median().item() == pytest.approx(0.8, abs=1e-3)
    assert policy.mode(torch.tensor([[0.4, 0.0], [9.0, 0.0]])).tolist() == [[pytest.approx(0.8)], [2.0]]


def test_extreme_parameters_have_finite_gradients() -> None:
    """Means far outside the bounds, small deviations, the largest and the smallest noise; a number without a choice."""
    policy = ClippedGaussian(Box(np.array([-2.0, 1.0], np.float32), np.array([2.0, 1.0], np.float32)))
    parameters = torch.tensor([[40.0, 0.0, -2.0, 0.0], [-40.0, 5.0, 1.0, -3.0]], requires_grad=True)
    for noise in (0.0, 1 - 2**-24):
        action = policy.sample(parameters, torch.full((2, 2), noise)).detach()
        assert action.isfinite().all() and (action[:, 1] == 1).all()
        for one in (action, torch.tensor([[-2.0, 1.0], [2.0, 1.0]]), torch.tensor([[0.0, 1.0], [0.1, 1.0]])):
            log_prob = policy.log_prob(parameters, one)
            (gradient,) = torch.autograd.grad(log_prob.sum(), parameters)
            assert log_prob.isfinite().all() and gradient.isfinite().all()


def test_actions_of_any_shape() -> None:
    policy, flat = ClippedGaussian(Box(-1.0, 1.0, (2, 3))), ClippedGaussian(Box(-1.0, 1.0, (6,)))
    parameters, noise = torch.randn(4, 12), torch.rand(4, 6)
    action = policy.sample(parameters, noise)
    assert action.shape == (4, 2, 3) and torch.equal(action.flatten(1), flat.sample(parameters, noise))
    assert torch.equal(policy.log_prob(parameters, action), flat.log_prob(parameters, action.flatten(1)))
