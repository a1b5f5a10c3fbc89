"""LAMB and MTAdam against numbers worked by hand, loops over single numbers, and Adam."""

import copy
import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from toy import assert_same

from icrl.training.optimizers import Lamb, MTAdam

RATE, BETAS, EPS = 0.1, (0.7, 0.9, 0.6), 0.01
LAMB = {"lr": RATE, "betas": BETAS[:2], "eps": EPS}
MTADAM = LAMB | {"betas": BETAS}
Found = list[Tensor | None]


def random(*shape: int, seed: int, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class Moments:
    """Adam's averages of one tensor, as lists of numbers."""

    def __init__(self, size: int) -> None:
        self.steps, self.mean, self.square = 0, [0.0] * size, [0.0] * size

    def add(self, gradient: list[float]) -> tuple[list[float], list[float]]:
        """Corrected mean and root of the corrected square."""
        beta1, beta2, _ = BETAS
        self.steps += 1
        self.mean = [beta1 * m + (1 - beta1) * g for m, g in zip(self.mean, gradient, strict=True)]
        self.square = [beta2 * v + (1 - beta2) * g * g for v, g in zip(self.square, gradient, strict=True)]
        corrected = [v / (1 - beta2**self.steps) for v in self.square]
        return [m / (1 - beta1**self.steps) for m in self.mean], [math.sqrt(v) for v in corrected]


def norm_of(numbers: list[float]) -> float:
    return math.sqrt(sum(x * x for x in numbers))


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6), st.booleans(), st.sampled_from([0.0, 0.3]), st.sampled_from([0.01, 1.0, 300.0]))
def test_steps_of_lamb_follow_the_equation(seed: int, decays: bool, weight_decay: float, scale: float) -> None:
    """With large and small gradients: none is clipped."""
    parameter = nn.Parameter(random(2, 3, seed=seed))
    optimizer = Lamb([{"params": [parameter], "decays": decays, "weight_decay": weight_decay}], **LAMB)
    weights, moments = parameter.flatten().tolist(), Moments(6)
    for step in range(4):
        parameter.grad = random(2, 3, seed=seed + step + 1, scale=scale**step)
        mean, spread = moments.add(parameter.grad.flatten().tolist())
        change = [m / (s + EPS) + weight_decay * w for m, s, w in zip(mean, spread, weights, strict=True)]
        ratio = norm_of(weights) / norm_of(change) if decays else 1.0
        weights = [w - RATE * ratio * u for w, u in zip(weights, change, strict=True)]
        optimizer.step()
        assert parameter.flatten().tolist() == pytest.approx(weights, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(
    ("weights", "gradient", "expected"),
    [
        ([3.0, 4.0], [7.0, -0.5], [2.646447, 4.353553]),  # |w| = 5 and |u| = sqrt(2)
        ([0.0, 0.0], [7.0, -0.5], [-0.1, 0.1]),  # where a norm is 0 the ratio is 1
        ([3.0, 4.0], [0.0, 0.0], [3.0, 4.0]),
    ],
)
def test_the_first_step_of_lamb(weights: list[float], gradient: list[float], expected: list[float]) -> None:
    late, parameter = nn.Parameter(torch.tensor(weights)), nn.Parameter(torch.tensor(weights))
    optimizer = Lamb([late, parameter], **LAMB | {"eps": 1e-12})
    parameter.grad = torch.tensor(gradient)
    optimizer.step()
    assert parameter.tolist() == pytest.approx(expected, abs=1e-6)
    assert late.tolist() == weights and not optimizer.state[late]  # it has no gradient yet
    late.grad = torch.tensor(gradient)
    optimizer.step()
    assert late.tolist() == pytest.approx(expected, abs=1e-6)


@settings(deadline=None, max_examples=30)
@given(
    st.integers(0, 10**6),
    st.lists(st.sampled_from([0.0, 0.5, 1.0, 3.0]), min_size=1, max_size=3),
    st.sampled_from([0.0, 0.3]),
)
def test_steps_of_mtadam_follow_the_equation(seed: int, ranks: list[float], weight_decay: float) -> None:
    """With terms that differ a thousandfold, some without a gradient or with a gradient of 0 for a while."""
    parameter = nn.Parameter(random(2, 3, seed=seed))
    optimizer = MTAdam([parameter], **MTADAM, weight_decay=weight_decay)
    weights, moments, norms = parameter.flatten().tolist(), [Moments(6) for _ in ranks], [0.0] * len(ranks)
    luck = torch.Generator().manual_seed(seed)
    for step in range(5):
        kinds = torch.randint(5, (len(ranks),), generator=luck).tolist()
        found: Found = [
            None if kind == 0 else (kind > 1) * 1000.0**term * random(2, 3, seed=seed + 10 * step + term)
            for term, kind in enumerate(kinds)
        ]
        gradients = {term: gradient.flatten().tolist() for term, gradient in enumerate(found) if gradient is not None}
        for term, gradient in gradients.items():
            new = norm_of(gradient)
            norms[term] = BETAS[2] * norms[term] + (1 - BETAS[2]) * new if moments[term].steps else new
        anchor = next((norms[term] for term in gradients if norms[term] > 1e-10), 1.0)
        moved = []
        for term, gradient in gradients.items():
            factor = ranks[term] * (anchor / norms[term] if norms[term] > 1e-10 else 1.0)
            moved.append(moments[term].add([factor * g for g in gradient]))
        for i, weight in enumerate(weights if moved else []):
            change = sum(mean[i] for mean, _ in moved) / max(spread[i] + EPS for _, spread in moved)
            weights[i] = weight - RATE * (change + weight_decay * weight)
        optimizer.step([[gradient] for gradient in found], ranks)
        assert parameter.flatten().tolist() == pytest.approx(weights, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(
    ("gradients", "ranks", "moved"),
    [
        ([2.0, -8.0], [1.0, 1.0], 0.0),  # both are scaled to 2
        ([2.0, -8.0], [1.0, 2.0], 0.5),  # to 2 and -4, over 4
        ([2.0, -8.0], [2.0, 1.0], -0.5),
        ([2.0, 8.0], [1.0, 1.0], -2.0),  # as much as two steps of Adam
        ([0.0, -8.0], [1.0, 1.0], 1.0),  # the second is the anchor
        ([None, -8.0], [1.0, 1.0], 1.0),
        ([1e-11, 8.0], [1.0, 1.0], -1.0),  # too small for an anchor
        ([2.0, -8.0], [0.0, 1.0], 1.0),  # a weight of 0
        ([None, None], [1.0, 1.0], 0.0),
    ],
)
def test_the_first_step_of_two_terms(gradients: list[float | None], ranks: list[float], moved: float) -> None:
    parameter = nn.Parameter(torch.tensor([5.0], dtype=torch.float64))
    found: list[Found] = [[None if g is None else torch.tensor([g], dtype=torch.float64)] for g in gradients]
    MTAdam([parameter], lr=1.0, betas=BETAS, eps=1e-12).step(found, ranks)
    assert parameter.item() - 5.0 == pytest.approx(moved, abs=1e-6)


def test_norms_are_those_of_single_tensors() -> None:
    """A term that is large in one tensor is not held down in another."""
    one, other = (nn.Parameter(torch.tensor([5.0])) for _ in range(2))
    large, small, half = torch.tensor([-800.0]), torch.tensor([-0.5]), torch.tensor([0.25])
    MTAdam([one, other], lr=1.0, betas=BETAS, eps=1e-8).step([[torch.tensor([2.0]), half], [large, small]], [1.0, 1.0])
    assert [one.item(), other.item()] == pytest.approx([5.0, 5.0])
    with pytest.raises(ValueError, match="zip"):  # as many gradients as parameters
        MTAdam([one], **MTADAM).step([[half, half]], [1.0])


def stepped(optimizer: Lamb | MTAdam, parameter: nn.Parameter, step: int) -> None:
    if isinstance(optimizer, Lamb):
        parameter.grad = random(2, 3, seed=step).to(parameter.dtype)
        optimizer.step()
    else:  # with terms that begin at different times
        one, other = (random(2, 3, seed=2 * step + term).to(parameter.dtype) for term in range(2))
        optimizer.step([[one if step else None], [100 * other]], [1.0, 0.5])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("make", [lambda p: Lamb([p], **LAMB, weight_decay=0.1), lambda p: MTAdam([p], **MTADAM)])
def test_a_restored_state_continues_with_the_same_bits(
    make: Callable[[nn.Parameter], Lamb | MTAdam], dtype: torch.dtype
) -> None:
    one = nn.Parameter(random(2, 3, seed=99).to(dtype))
    optimizer = make(one)
    for step in range(3):
        stepped(optimizer, one, step)
    other = nn.Parameter(one.detach().clone())
    restored = make(other)
    restored.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for step in range(3, 6):
        stepped(optimizer, one, step)
        stepped(restored, other, step)
    assert torch.equal(one, other)
    assert_same(optimizer.state_dict(), restored.state_dict())
