"""Random numbers as functions of (seed, counter)."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from icrl.randomness import Noise, cumulative, draw, integers, mix, several, stream_seeds, uniform

INT64 = st.integers(-(2**63), 2**63 - 1)


def chi_square(counts: torch.Tensor) -> float:
    expected = counts.sum() / len(counts)
    return float(((counts - expected) ** 2 / expected).sum())


def test_mix_gives_the_published_numbers_of_splitmix64() -> None:
    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC]
    assert [number % 2**64 for number in mix(torch.tensor(0), torch.arange(4)).tolist()] == published


@given(INT64, st.integers(0, 2**40), st.integers(1, 10**6))
def test_numbers_are_in_range_and_the_same_alone_as_in_a_batch(seed: int, counter: int, high: int) -> None:
    seeds, counters = torch.tensor([5, seed, -1]), torch.tensor([2, counter, 0])
    alone = uniform(torch.tensor(seed), counter)
    assert 0 <= alone < 1
    assert uniform(seeds, counters)[1] == alone
    assert 0 <= integers(torch.tensor(seed), counter, high) < high


@pytest.mark.parametrize("along", ["counters", "seeds", "small seeds"])
def test_uniform_is_uniform_and_uncorrelated(along: str) -> None:
    """Over the time of one stream, over streams at one time, and over seeds 0, 1, 2, ..."""
    count = 2**16
    numbers = {
        "counters": uniform(stream_seeds(1, 1), torch.arange(count)),
        "seeds": uniform(stream_seeds(1, count), 3),
        "small seeds": uniform(torch.arange(count), 0),
    }[along]
    assert chi_square((numbers * 64).long().bincount(minlength=64)) < 113  # 63 degrees of freedom: p = 1e-4
    pairs = (numbers[:-1] * 8).long() * 8 + (numbers[1:] * 8).long()
    assert chi_square(pairs.bincount(minlength=64)) < 113


def test_integers_are_uniform() -> None:
    counts = integers(stream_seeds(2, 300), torch.arange(300)[:, None], 81).flatten().bincount(minlength=81)
    assert len(counts) == 81 and chi_square(counts) < 136  # 80 degrees of freedom: p = 1e-4


@given(st.integers(0, 2**62), st.integers(1, 40), st.integers(1, 40), st.integers(0, 5))
def test_stream_seeds_do_not_depend_on_how_many(seed: int, few: int, many: int, purpose: int) -> None:
    shared = min(few, many)
    assert torch.equal(stream_seeds(seed, few, purpose)[:shared], stream_seeds(seed, many, purpose)[:shared])


def test_stream_seeds_differ_over_streams_seeds_and_purposes() -> None:
    seeds = torch.cat([stream_seeds(seed, 500, purpose) for seed in range(20) for purpose in range(3)])
    assert len(seeds.unique()) == 20 * 3 * 500


@given(st.integers(0, 20), st.integers(0, 20), st.integers(1, 8))
def test_noise_in_two_parts_equals_noise_at_once(first: int, second: int, num_streams: int) -> None:
    seeds = stream_seeds(0, 8)
    noise = Noise(seeds[:num_streams])
    parts = torch.cat([noise.draw(first), noise.draw(second)])
    whole = Noise(seeds).draw(first + second)
    assert torch.equal(parts, whole[:, :num_streams])
    assert torch.equal(Noise(seeds, time=first).draw(second), whole[first:])


def test_draw_inverts_the_distribution_at_its_steps() -> None:
    steps_up = cumulative(torch.tensor([[0.25, 0.25, 0.5]])).expand(6, 2)
    noise = torch.tensor([0.0, 0.2499, 0.25, 0.4999, 0.5, 0.9999])
    assert draw(steps_up, noise).tolist() == [0, 0, 1, 1, 2, 2]


def test_a_seed_of_more_bits_is_refused() -> None:
    with pytest.raises(ValueError, match=f"^seed={2**70}: must fit in 64 bits$"):
        stream_seeds(2**70, 1)


def test_numbers_that_a_policy_spreads_are_uniform_and_unrelated() -> None:
    noise = Noise(stream_seeds(0, 4000)).draw(1)[0]
    numbers = several(noise, 3)
    assert numbers.shape == (4000, 3) and numbers.min() >= 0 and numbers.max() < 1
    quarters = torch.tensor([0.25, 0.5, 0.75])
    for column in numbers.T:
        assert (column.quantile(quarters) - quarters).abs().max() < 0.03
    related = torch.corrcoef(torch.cat([noise[:, None], numbers], dim=1).T)
    assert (related - torch.eye(4)).abs().max() < 0.06
    assert torch.equal(several(noise[5:6], 3), numbers[5:6]) and torch.equal(several(noise, 2), numbers[:, :2])
