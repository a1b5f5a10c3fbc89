"""Intervals against a plain bootstrap loop and against the truth they should cover."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from src.evaluation import statistics
from src.evaluation.statistics import bootstrap_interval, interquartile_mean


def test_covers_the_truth_as_often_as_promised() -> None:
    """400 data sets at once on the trailing axis: tasks differ, and streams differ within tasks; the mean is 0."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(40, 1, 400)) + rng.normal(size=(40, 8, 400))
    low, high = bootstrap_interval(values, 500, 0.9, seed=1)
    covered = ((low < 0) & (high > 0)).mean()
    assert 0.86 < covered < 0.96  # the standard error of 0.9 is 0.015


def test_equals_a_plain_loop() -> None:
    rng = np.random.default_rng(3)
    values = rng.normal(size=(6, 1)) + rng.normal(size=(6, 4))
    means = []
    for _ in range(4000):
        tasks = rng.integers(6, size=6)
        means.append(np.mean([values[task, rng.integers(4, size=4)] for task in tasks]))
    low, high = bootstrap_interval(values, 4000, 0.8, seed=0)
    assert low == pytest.approx(np.quantile(means, 0.1), abs=0.04)
    assert high == pytest.approx(np.quantile(means, 0.9), abs=0.04)
    assert high - low > 0.5


def test_episodes_are_treated_one_by_one_and_in_any_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).random((5, 3, 4, 2)) < 0.4
    low, high = bootstrap_interval(values, 200, 0.95, seed=7)
    assert low.shape == high.shape == (4, 2)
    assert (low < high).all()
    alone = bootstrap_interval(values[:, :, 2, 1], 200, 0.95, seed=7)
    np.testing.assert_allclose((low[2, 1], high[2, 1]), alone)
    monkeypatch.setattr(statistics, "_CHUNK_BYTES", 1000)
    np.testing.assert_allclose(bootstrap_interval(values, 200, 0.95, seed=7), (low, high))
    assert (bootstrap_interval(values, 200, 0.95, seed=8)[0] != low).any()


def test_interval_is_a_point_where_nothing_varies() -> None:
    low, high = bootstrap_interval(np.full((4, 3, 2), 0.25), 100, 0.95, seed=0)
    assert (low == 0.25).all()
    assert (high == 0.25).all()


@pytest.mark.parametrize(
    ("values", "expected"),
    [([1, 2, 3, 4, 5, 6, 7, 80], 4.5), ([0, 0, 0, 1, 100], 0.75 / 2.5), ([3], 3.0), ([-50, 2, 4, 900], 3.0)],
)
def test_interquartile_mean_by_hand(values: list[int], expected: float) -> None:
    assert interquartile_mean(np.array([values])) == pytest.approx(expected)


@given(st.integers(1, 5), st.integers(1, 5), st.integers(0, 1000))
def test_interquartile_mean_by_repetition(num_tasks: int, num_streams: int, seed: int) -> None:
    """Each value four times makes a quarter a whole number."""
    values = np.random.default_rng(seed).normal(size=(num_tasks, num_streams, 3))
    flat = np.sort(np.repeat(values.reshape(-1, 3), 4, axis=0), axis=0)
    quarter = len(flat) // 4
    np.testing.assert_allclose(interquartile_mean(values), flat[quarter:-quarter].mean(axis=0))
