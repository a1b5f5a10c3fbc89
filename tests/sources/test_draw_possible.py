"""Sampling of categoricals: actions with probability 0 are never drawn, however probabilities are rounded."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icrl.randomness import cumulative, draw, draw_possible, stream_seeds, uniform

HIGHEST = 1 - 2**-24
NOISE = torch.tensor([0.0, 2**-24, 0.25, 0.5, 0.75, 1 - 2**-12, 1 - 2**-23, HIGHEST])


@settings(deadline=None, max_examples=100)
@given(
    weights=st.lists(st.floats(0, 1e30) | st.floats(0, 1e-30) | st.just(0.0), min_size=1, max_size=40),
    scale=st.sampled_from([1.0, 0.9999999, 1 - 2**-20]),
)
def test_impossible_actions_are_not_drawn(weights: list[float], scale: float) -> None:
    """Also if the probabilities add up to less than the highest noise."""
    whole = torch.tensor([*weights, 1.0], dtype=torch.float64)
    probabilities = (scale * whole / whole.sum()).float().roll(len(weights) // 2)
    drawn = draw_possible(probabilities.expand(len(NOISE), -1), NOISE)
    assert (probabilities[drawn] > 0).all()
    assert drawn.dtype == torch.long and drawn.tolist() == sorted(drawn.tolist())


def test_shares_are_the_probabilities() -> None:
    """And plain `draw` fails where a rounded sum is below the highest noise."""
    probabilities, number = torch.tensor([0.0, 0.1, 0.0, 0.6, 0.3, 0.0]), 40_000
    drawn = draw_possible(probabilities.expand(number, 6), uniform(stream_seeds(3, number), 0))
    assert torch.allclose(drawn.bincount(minlength=6) / number, probabilities, atol=0.01)
    rounded, noise = torch.tensor([[0.0, 0.3333333, 0.3333333, 0.3333333, 0.0, 0.0]]), torch.tensor([HIGHEST])
    assert draw(cumulative(rounded), noise).tolist() == [5] and draw_possible(rounded, noise).tolist() == [3]
