"""MTAdam against numbers worked by hand, a loop over single numbers, and Adam."""

import copy
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from toy import assert_same

from icrl.training.mtadam import MTAdam

RATE, BETAS, EPS = 0.1, (0.7, 0.9, 0.6), 0.01
Found = list[Tensor | None]


def random(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class ByHand:
    """One tensor as a list of numbers."""

    def __init__(self, weights: list[float], num_terms: int, weight_decay: float) -> None:
        self.weights, self.weight_decay = list(weights), weight_decay
        self.steps = [0] * num_terms
        self.norms = [0.0] * num_terms
        self.means = [[0.0] * len(weights) for _ in range(num_terms)]
        self.squares = [[0.0] * len(weights) for _ in range(num_terms)]

    def step(self, gradients: list[list[float] | None], ranks: list[float]) -> None:
        beta1, beta2, beta3 = BETAS
        there = [term for term, gradient in enumerate(gradients) if gradient is not None]
        for term in there:
            norm = math.sqrt(sum(g * g for g in gradients[term]))
            first = self.steps[term] == 0
            self.norms[term] = norm if first else beta3 * self.norms[term] + (1 - beta3) * norm
        anchors = [self.norms[term] for term in there if self.norms[term] > 1e-10]
        for term in there:
            factor = ranks[term] * (anchors[0] / self.norms[term] if self.norms[term] > 1e-10 else 1.0)
            self.steps[term] += 1
            for i, g in enumerate(gradients[term]):
                self.means[term][i] = beta1 * self.means[term][i] + (1 - beta1) * factor * g
                self.squares[term][i] = beta2 * self.squares[term][i] + (1 - beta2) * (factor * g) ** 2
        for i, weight in enumerate(self.weights if there else []):
            total = sum(self.means[term][i] / (1 - beta1 ** self.steps[term]) for term in there)
            spread = max(math.sqrt(self.squares[term][i] / (1 - beta2 ** self.steps[term])) + EPS for term in there)
            self.weights[i] = weight - RATE * (total / spread + self.weight_decay * weight)


def optimizer_of(*parameters: nn.Parameter, **changes: Any) -> MTAdam:
    return MTAdam(parameters, **{"lr": RATE, "betas": BETAS, "eps": EPS} | changes)


@settings(deadline=None)
@given(
    st.integers(0, 10**6),
    st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0]), min_size=1, max_size=3),
    st.sampled_from([0.0, 0.3]),
)
def test_steps_are_those_of_the_equation(seed: int, ranks: list[float], weight_decay: float) -> None:
    """With terms that differ a thousandfold, some without a gradient or with a gradient of 0 for a while."""
    parameter = nn.Parameter(random(2, 3, seed=seed))
    optimizer = optimizer_of(parameter, weight_decay=weight_decay)
    expected = ByHand(parameter.flatten().tolist(), len(ranks), weight_decay)
    luck = torch.Generator().manual_seed(seed)
    for step in range(5):
        kinds = torch.randint(5, (len(ranks),), generator=luck).tolist()
        found: Found = [
            None if kind == 0 else (kind > 1) * 1000.0**term * random(2, 3, seed=seed + 10 * step + term)
            for term, kind in enumerate(kinds)
        ]
        expected.step([None if gradient is None else gradient.flatten().tolist() for gradient in found], ranks)
        optimizer.step([[gradient] for gradient in found], ranks)
        assert parameter.flatten().tolist() == pytest.approx(expected.weights, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_a_single_term_is_adam(weight_decay: float) -> None:
    ours, theirs = ([nn.Parameter(random(2, 3, seed=1)), nn.Parameter(random(4, seed=2))] for _ in range(2))
    optimizer = MTAdam(ours, lr=0.1, betas=(0.7, 0.9, 0.6), eps=0.01, weight_decay=weight_decay)
    adam = torch.optim.AdamW(theirs, lr=0.1, betas=(0.7, 0.9), eps=0.01, weight_decay=weight_decay)
    for step in range(5):
        gradients = [random(*parameter.shape, seed=step + 10) for parameter in ours]
        optimizer.step([gradients], [1.0])
        for parameter, gradient in zip(theirs, gradients, strict=True):
            parameter.grad = gradient
        adam.step()
        for one, other in zip(ours, theirs, strict=True):
            torch.testing.assert_close(one, other)


@pytest.mark.parametrize(
    ("gradients", "ranks", "moved"),
    [
        ([2.0, -8.0], [1.0, 1.0], 0.0),  # both are brought to 2
        ([2.0, -8.0], [1.0, 2.0], 0.5),  # to 2 and -4, over 4
        ([2.0, -8.0], [2.0, 1.0], -0.5),
        ([2.0, 8.0], [1.0, 1.0], -2.0),  # as much as two steps of Adam
        ([0.0, -8.0], [1.0, 1.0], 1.0),  # the second is the anchor
        ([None, -8.0], [1.0, 1.0], 1.0),
        ([2.0, None], [1.0, 1.0], -1.0),
        ([1e-11, 8.0], [1.0, 1.0], -1.0),  # too small for an anchor
        ([2.0, -8.0], [0.0, 1.0], 1.0),  # of no weight
        ([0.0, 0.0], [1.0, 1.0], 0.0),
        ([None, None], [1.0, 1.0], 0.0),
    ],
)
def test_the_first_step_of_two_terms(gradients: list[float | None], ranks: list[float], moved: float) -> None:
    parameter = nn.Parameter(torch.tensor([5.0], dtype=torch.float64))
    found: list[Found] = [[None if g is None else torch.tensor([g], dtype=torch.float64)] for g in gradients]
    MTAdam([parameter], lr=1.0, eps=1e-12).step(found, ranks)
    assert parameter.item() - 5.0 == pytest.approx(moved, abs=1e-6)


def test_norms_are_of_single_tensors() -> None:
    """A term that is large in one of them is not held down in the other."""
    one, other = (nn.Parameter(torch.tensor([5.0])) for _ in range(2))
    large, small, half = torch.tensor([-800.0]), torch.tensor([-0.5]), torch.tensor([0.25])
    MTAdam([one, other], lr=1.0).step([[torch.tensor([2.0]), half], [large, small]], [1.0, 1.0])
    assert [one.item(), other.item()] == pytest.approx([5.0, 5.0])
    assert MTAdam([one, other]).parameters == [one, other]


def test_who_has_no_gradient_at_all_stays_and_the_others_go_on() -> None:
    first, second = (nn.Parameter(torch.tensor([5.0])) for _ in range(2))
    optimizer = MTAdam([{"params": [first, second], "weight_decay": 0.5}], lr=0.1)
    optimizer.step([[None, torch.tensor([1.0])], [None, None]], [1.0, 1.0])
    assert first.item() == 5.0 and not optimizer.state[first]
    assert second.item() == pytest.approx(5.0 - 0.1 * (1 + 0.5 * 5))


def test_as_many_gradients_as_parameters() -> None:
    one = nn.Parameter(torch.ones(1))
    with pytest.raises(ValueError, match="zip"):
        MTAdam([one]).step([[torch.ones(1), torch.ones(1)]], [1.0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_restored_state_goes_on_with_the_same_bits(dtype: torch.dtype) -> None:
    """Norm averages and all, for terms that came at different times."""

    def after(optimizer: MTAdam, parameter: nn.Parameter, first: int) -> None:
        for step in range(first, first + 3):
            one, other = (random(2, 3, seed=2 * step + term).to(dtype) for term in range(2))
            optimizer.step([[one if step else None], [100 * other]], [1.0, 0.5])

    one = nn.Parameter(random(2, 3, seed=99).to(dtype))
    optimizer = optimizer_of(one, weight_decay=0.1)
    after(optimizer, one, 0)
    other = nn.Parameter(one.detach().clone())
    restored = MTAdam([other], lr=0.7)
    restored.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    after(optimizer, one, 3)
    after(restored, other, 3)
    assert torch.equal(one, other)
    assert_same(optimizer.state_dict(), restored.state_dict())
