"""LAMB against numbers worked by hand and a loop over single numbers."""

import copy
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from toy import assert_same

from icrl.training.lamb import Lamb

SETTINGS = {"lr": 0.1, "betas": (0.7, 0.9), "eps": 0.01}


def random(*shape: int, seed: int, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class ByHand:
    """One tensor as a list of numbers."""

    def __init__(self, weights: list[float], *, decays: bool, weight_decay: float) -> None:
        self.weights, self.decays, self.weight_decay = list(weights), decays, weight_decay
        self.mean, self.square = [0.0] * len(weights), [0.0] * len(weights)
        self.steps = 0

    def step(self, gradient: list[float]) -> None:
        rate, (beta1, beta2), eps = SETTINGS["lr"], SETTINGS["betas"], SETTINGS["eps"]
        self.steps += 1
        change = []
        for i, g in enumerate(gradient):
            self.mean[i] = beta1 * self.mean[i] + (1 - beta1) * g
            self.square[i] = beta2 * self.square[i] + (1 - beta2) * g * g
            mean, square = self.mean[i] / (1 - beta1**self.steps), self.square[i] / (1 - beta2**self.steps)
            change.append(mean / (math.sqrt(square) + eps) + self.weight_decay * self.weights[i])
        of_weights, of_change = (math.sqrt(sum(x * x for x in numbers)) for numbers in (self.weights, change))
        ratio = of_weights / of_change if self.decays and of_weights and of_change else 1.0
        self.weights = [w - rate * ratio * u for w, u in zip(self.weights, change, strict=True)]


@settings(deadline=None)
@given(st.integers(0, 10**6), st.booleans(), st.sampled_from([0.0, 0.3]), st.sampled_from([0.01, 1.0, 300.0]))
def test_steps_are_those_of_the_equation(seed: int, decays: bool, weight_decay: float, scale: float) -> None:
    """Gradients large and small: none is clipped on the way."""
    parameter = nn.Parameter(random(2, 3, seed=seed))
    optimizer = Lamb([{"params": [parameter], "decays": decays, "weight_decay": weight_decay}], **SETTINGS)
    expected = ByHand(parameter.flatten().tolist(), decays=decays, weight_decay=weight_decay)
    for step in range(4):
        parameter.grad = random(2, 3, seed=seed + step + 1, scale=scale**step)
        expected.step(parameter.grad.flatten().tolist())
        optimizer.step()
        assert parameter.flatten().tolist() == pytest.approx(expected.weights, rel=1e-9, abs=1e-12)


def test_the_first_step_is_the_norm_of_the_weights_against_the_sign_of_the_gradient() -> None:
    """|w| = 5 and |u| = sqrt(2), without any weight decay."""
    parameter = nn.Parameter(torch.tensor([3.0, 4.0]))
    parameter.grad = torch.tensor([7.0, -0.5])
    Lamb([parameter], lr=0.1, eps=0.0).step()
    assert parameter.tolist() == pytest.approx([2.646447, 4.353553], abs=1e-6)


@pytest.mark.parametrize(
    ("weights", "gradient", "expected"),
    [([0.0, 0.0], [7.0, -0.5], [-0.1, 0.1]), ([3.0, 4.0], [0.0, 0.0], [3.0, 4.0])],
)
def test_the_ratio_is_1_where_a_norm_is_0(weights: list[float], gradient: list[float], expected: list[float]) -> None:
    parameter = nn.Parameter(torch.tensor(weights))
    parameter.grad = torch.tensor(gradient)
    Lamb([parameter], lr=0.1, eps=1e-12).step()
    assert parameter.tolist() == pytest.approx(expected)


def test_the_group_says_where_the_ratio_applies_and_not_its_weight_decay() -> None:
    plain, scaled = (nn.Parameter(torch.tensor([30.0, 40.0])) for _ in range(2))
    groups = [
        {"params": [plain], "decays": False, "weight_decay": 0.1},
        {"params": [scaled], "decays": True, "weight_decay": 0.0},
    ]
    optimizer = Lamb(groups, lr=0.1, eps=1e-12)
    for parameter in (plain, scaled):
        parameter.grad = torch.tensor([1.0, 1.0])
    optimizer.step()
    assert plain.tolist() == pytest.approx([30 - 0.1 * (1 + 3), 40 - 0.1 * (1 + 4)])
    assert scaled.tolist() == pytest.approx([30 - 0.1 * 50 / math.sqrt(2), 40 - 0.1 * 50 / math.sqrt(2)])


def test_what_has_no_gradient_stays_and_starts_when_it_has_one() -> None:
    late, always = nn.Parameter(torch.tensor([3.0, 4.0])), nn.Parameter(torch.tensor([3.0, 4.0]))
    optimizer = Lamb([late, always], lr=0.1, eps=0.0)
    always.grad = torch.tensor([1.0, 2.0])
    optimizer.step()
    assert late.tolist() == [3.0, 4.0] and not optimizer.state[late]
    late.grad = torch.tensor([7.0, -0.5])
    optimizer.step()
    assert late.tolist() == pytest.approx([2.646447, 4.353553], abs=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_restored_state_goes_on_with_the_same_bits(dtype: torch.dtype) -> None:
    def after(optimizer: Lamb, parameter: nn.Parameter, first: int) -> None:
        for step in range(first, first + 3):
            parameter.grad = random(2, 3, seed=step).to(dtype)
            optimizer.step()

    one = nn.Parameter(random(2, 3, seed=99).to(dtype))
    optimizer = Lamb([one], weight_decay=0.1, **SETTINGS)
    after(optimizer, one, 0)
    other = nn.Parameter(one.detach().clone())
    restored = Lamb([other], lr=0.7)
    restored.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    after(optimizer, one, 3)
    after(restored, other, 3)
    assert torch.equal(one, other)
    assert_same(optimizer.state_dict(), restored.state_dict())


def test_a_closure_is_called_with_gradients_on() -> None:
    parameter = nn.Parameter(torch.tensor([3.0, 4.0]))

    def closure() -> float:
        loss = parameter.square().sum()
        loss.backward()
        return loss.item()

    assert Lamb([parameter]).step(closure) == 25
    assert parameter.tolist() != [3.0, 4.0]
