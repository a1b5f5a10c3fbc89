"""Actions that have probability 0 are never drawn, whatever the noise and however probabilities are rounded."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icrl.randomness import cumulative, draw, draw_possible, stream_seeds, uniform

HIGHEST = 1 - 2**-24
NOISE = torch.tensor([0.0, 2**-24, 0.25, 0.5, 0.75, 1 - 2**-12, 1 - 2**-23, HIGHEST])


@settings(deadline=None, max_examples=300)
@given(
    weights=st.lists(st.floats(0, 1e30) | st.floats(0, 1e-30) | st.just(0.0), min_size=1, max_size=40),
    scale=st.sampled_from([1.0, 0.9999999, 1 - 2**-20]),
)
def test_what_is_impossible_is_not_drawn(weights: list[float], scale: float) -> None:
    """Also where the probabilities do not add up to 1, which the highest noise then falls behind."""
    whole = torch.tensor([*weights, 1.0], dtype=torch.float64)
    probabilities = (scale * whole / whole.sum()).float().roll(len(weights) // 2)
    drawn = draw_possible(probabilities.expand(len(NOISE), -1), NOISE)
    assert (probabilities[drawn] > 0).all()
    assert drawn.dtype == torch.long and drawn.tolist() == sorted(drawn.tolist())


@settings(deadline=None, max_examples=100)
@given(st.lists(st.integers(1, 1000), min_size=1, max_size=30), st.integers(0, 10**6))
def test_it_is_draw_where_nothing_is_impossible(weights: list[int], seed: int) -> None:
    counts = torch.tensor(weights).float()
    probabilities = (counts / counts.sum()).expand(200, -1)
    noise = torch.cat([NOISE, uniform(stream_seeds(seed, 200 - len(NOISE)), 0)])
    assert torch.equal(draw_possible(probabilities, noise), draw(cumulative(probabilities), noise))


def test_a_rounded_sum_is_where_plain_draw_fails() -> None:
    probabilities = torch.tensor([[0.0, 0.3333333, 0.3333333, 0.3333333, 0.0, 0.0]])
    noise = torch.tensor([HIGHEST])
    assert draw(cumulative(probabilities), noise).tolist() == [5]
    assert draw_possible(probabilities, noise).tolist() == [3]


def test_shares_are_the_probabilities() -> None:
    probabilities = torch.tensor([0.0, 0.1, 0.0, 0.6, 0.3, 0.0])
    number = 40_000
    drawn = draw_possible(probabilities.expand(number, 6), uniform(stream_seeds(3, number), 0))
    assert torch.allclose(drawn.bincount(minlength=6) / number, probabilities, atol=0.01)
