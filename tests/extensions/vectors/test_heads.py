"""Heads of models and source agents against torch's distributions, integrals, and frequencies of their samples."""

import math

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space
from torch import Tensor
from torch.distributions import AffineTransform, Normal, TanhTransform, TransformedDistribution
from torch.distributions import Categorical as Reference

from icrl.app.compose import load_config
from icrl.config.options import replace
from icrl.contracts import ConfigError
from icrl.extensions.vectors.actions import ClippedGaussian, SquashedGaussian
from icrl.nn.heads import Head, make_head
from icrl.spaces import EnvSpec

BOX = Box(np.array([-2.0, 0.5], np.float32), np.array([1.0, 0.75], np.float32))
SPACES: dict[str, tuple[Space, str]] = {
    "multi": (MultiDiscrete([3, 2, 4]), "auto"),
    "gaussian": (BOX, "gaussian"),
    "binned": (BOX, "binned"),
}
NUMBER = 40_000
every_head = pytest.mark.parametrize("name", SPACES)


def made(space: Space, kind: str, num_bins: int = 6) -> Head:
    config = replace(load_config().model, head=kind, num_bins=num_bins)
    return make_head(config, EnvSpec(Discrete(2), space, (), 0, 5))


def head_of(name: str) -> Head:
    return made(*SPACES[name])


def parameters_of(head: Head, *shape: int, seed: int = 0, scale: float = 1.0) -> Tensor:
    return torch.randn(*shape, head.num_parameters, generator=torch.Generator().manual_seed(seed)) * scale


def samples(head: Head, parameters: Tensor, temperature: float = 1.0) -> Tensor:
    """Many samples with the `parameters` `[P]`."""
    noise = torch.rand(NUMBER, head.num_noise, generator=torch.Generator().manual_seed(1))
    return head.sample(parameters.expand(NUMBER, -1), noise, temperature)


def squashed(parameters: Tensor, temperature: float = 1.0) -> TransformedDistribution:
    """The Gaussian head by torch's own transforms."""
    mean, free = parameters.double().chunk(2, -1)
    normal = Normal(mean, (4 * free.tanh()).exp() * temperature**0.5)
    low, high = torch.tensor(BOX.low).double(), torch.tensor(BOX.high).double()
    moved = AffineTransform((low + high) / 2, (high - low) / 2)
    return TransformedDistribution(normal, [TanhTransform(cache_size=1), moved])


@every_head
def test_samples_lie_in_the_space_and_have_finite_log_probabilities(name: str) -> None:
    """Even with the largest parameters and noise at its ends."""
    head, space = head_of(name), SPACES[name][0]
    noise = torch.tensor([0.0, 1 - 2**-24]).repeat(150)[:, None].expand(-1, head.num_noise)
    for scale in (1.0, 100.0):
        parameters = parameters_of(head, 300, scale=scale)
        for action in (head.sample(parameters, noise), head.mode(parameters)):
            assert action.shape == (300, *space.shape)
            assert all(space.contains(one.astype(space.dtype)) for one in action.numpy())
            assert head.log_prob(parameters, action).isfinite().all()
            assert head.log_prob(parameters, action).shape == (300,)


def test_log_probabilities_and_entropies_of_categoricals_equal_torch() -> None:
    multi, parameters = head_of("multi"), parameters_of(head_of("multi"), 7, 3)
    action = torch.stack([torch.randint(size, (7, 3)) for size in (3, 2, 4)], -1)
    each = [Reference(logits=part) for part in (parameters[..., :3], parameters[..., 3:5], parameters[..., 5:])]
    expected = sum(one.log_prob(action[..., i]) for i, one in enumerate(each))
    torch.testing.assert_close(multi.log_prob(parameters, action), expected)
    torch.testing.assert_close(multi.entropy(parameters), sum(one.entropy() for one in each))


def test_actions_and_draws_of_the_gaussian_have_the_exact_density_and_its_gradient() -> None:
    """Far into the tails too, where an action on the bound would have no density."""
    head, noise = head_of("gaussian"), torch.randn(300, 2, generator=torch.Generator().manual_seed(2)).double()
    assert isinstance(head, SquashedGaussian)
    parameters = parameters_of(head, 300, scale=0.3).double()
    inside = (head.draw_in_units(parameters, noise)[0].abs() < 0.999).all(-1)
    parameters, noise = parameters[inside].requires_grad_(), noise[inside]
    drawn, log_prob = head.draw_in_units(parameters, noise)
    action = head.from_units(drawn)
    torch.testing.assert_close(head.in_units(action), drawn)
    half = torch.tensor(BOX.high - BOX.low).double() / 2
    of_action = squashed(parameters).log_prob(action).sum(-1)
    torch.testing.assert_close(head.log_prob(parameters, action), of_action, rtol=1e-4, atol=1e-3)
    expected = of_action + half.log().sum()
    torch.testing.assert_close(log_prob, expected, rtol=1e-4, atol=1e-4)
    ours = torch.autograd.grad(log_prob.sum(), parameters, retain_graph=True)[0]
    theirs = torch.autograd.grad(expected.sum(), parameters)[0]
    torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)
    far = torch.tensor([[30.0, -30.0, 0.0, 0.0]], requires_grad=True)
    drawn, log_prob = head.draw_in_units(far, torch.zeros(1, 2))
    assert drawn.abs().tolist() == [[1.0, 1.0]] and log_prob.isfinite().all()
    assert torch.autograd.grad(log_prob.sum(), far)[0].tolist()[0][:2] == pytest.approx([2.0, -2.0])


@pytest.mark.parametrize("name", ["gaussian", "binned"])
def test_densities_integrate_to_one_and_to_the_entropy(name: str) -> None:
    head = head_of(name)
    parameters = parameters_of(head, scale=0.15).double()
    places = [torch.linspace(low, high, 801, dtype=torch.float64) for low, high in zip(BOX.low, BOX.high, strict=True)]
    places = [(ends[1:] + ends[:-1]) / 2 for ends in places]
    cell = np.prod(BOX.high - BOX.low) / 800**2
    log = head.log_prob(parameters.expand(800, 800, -1), torch.cartesian_prod(*places).view(800, 800, 2))
    assert (log.exp().sum() * cell).item() == pytest.approx(1, abs=0.01)
    assert -(log.exp() * log).sum().item() * cell == pytest.approx(head.entropy(parameters).item(), abs=0.03)


@pytest.mark.parametrize("temperature", [1.0, 0.25])
@every_head
def test_samples_have_the_distribution_of_the_parameters(name: str, temperature: float) -> None:
    head = head_of(name)
    parameters = parameters_of(head, seed=2)
    drawn = samples(head, parameters, temperature)
    if name == "multi":
        for i, part in enumerate(parameters.split([3, 2, 4])):
            frequency = torch.bincount(drawn[:, i], minlength=len(part)) / NUMBER
            assert (frequency - (part / temperature).softmax(-1)).abs().max() < 0.01
        return
    if name == "gaussian":
        levels = torch.linspace(0.05, 0.95, 19)[:, None]
        quantiles = squashed(parameters, temperature).icdf(levels.double())
        assert ((drawn[:, None] <= quantiles).float().mean(0) - levels).abs().max() < 0.01
        return
    p = (parameters.view(2, 6) / temperature).softmax(-1)
    for i, (low, high) in enumerate(zip(BOX.low, BOX.high, strict=True)):
        ends = torch.linspace(low, high, 13)  # two halves of each bin are equally likely
        share = torch.histogram(drawn[:, i], ends).hist / NUMBER
        assert (share - p[i].repeat_interleave(2) / 2).abs().max() < 0.01


@pytest.mark.parametrize("name", ["multi", "binned"])
def test_no_action_is_more_probable_than_the_mode(name: str) -> None:
    head = head_of(name)
    for seed in range(5):
        parameters = parameters_of(head, seed=seed)
        drawn = head.log_prob(parameters.expand(NUMBER, -1), samples(head, parameters))
        assert drawn.max() <= head.log_prob(parameters, head.mode(parameters)) + 1e-6


def test_mode_of_the_gaussian_is_the_median_and_actions_on_a_bound_are_learnable() -> None:
    head = head_of("gaussian")
    parameters = parameters_of(head)
    torch.testing.assert_close(samples(head, parameters).median(0).values, head.mode(parameters), atol=0.01, rtol=0.01)
    free = torch.zeros(head.num_parameters, requires_grad=True)
    descent = torch.optim.Adam([free], lr=0.3)
    for _ in range(400):
        descent.zero_grad()
        (-head.log_prob(free, torch.tensor([-2.0, 0.75]))).backward()
        descent.step()
    torch.testing.assert_close(head.mode(free.detach()), torch.tensor([-2.0, 0.75]), atol=0.01, rtol=0)


def test_spaces_without_a_head_are_refused_with_what_is_allowed() -> None:
    for space, kind, message in (
        (MultiDiscrete([3]), "binned", r"model\.head=binned is for actions in a Box, not in Multi.*: must be auto"),
        (Discrete(4), "gaussian", r"is for actions in a Box, not in Discrete\(4\)"),
        (Box(-np.inf, 1, (2,)), "auto", "have no bounds"),
        (Box(-1, 1, (2, 2)), "gaussian", "needs a vector"),
        (Box(np.float32([-1, 2]), np.float32([1, 2])), "auto", "needs bounds that differ"),
        (MultiBinary(3), "auto", "must be Discrete, a MultiDiscrete vector or a Box"),
        (Dict(a=Discrete(2)), "auto", "must be Discrete"),
    ):
        with pytest.raises(ConfigError, match=message):
            made(space, kind)


# ---- the clipped Gaussian of source agents, against the mathematics of single numbers


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


def test_a_number_without_a_choice_has_probability_1() -> None:
    both, parameters = Box(np.array([-2.0, 1.0], np.float32), np.array([2.0, 1.0], np.float32)), torch.randn(6, 4)
    action = torch.tensor([[-2.0, 1.0], [2.0, 1.0], [0.3, 1.0]]).repeat(2, 1)
    alone = ClippedGaussian(Box(-2.0, 2.0, (1,))).log_prob(parameters[:, ::2], action[:, :1])
    assert torch.equal(ClippedGaussian(both).log_prob(parameters, action), alone)


def test_actions_of_any_shape() -> None:
    policy, flat = ClippedGaussian(Box(-1.0, 1.0, (2, 3))), ClippedGaussian(Box(-1.0, 1.0, (6,)))
    parameters, noise = torch.randn(4, 12), torch.rand(4, 6)
    action = policy.sample(parameters, noise)
    assert action.shape == (4, 2, 3) and torch.equal(action.flatten(1), flat.sample(parameters, noise))
    assert torch.equal(policy.log_prob(parameters, action), flat.log_prob(parameters, action.flatten(1)))
