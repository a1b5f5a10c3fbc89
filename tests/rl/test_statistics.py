"""Intervals against a plain bootstrap loop and against the truth they should cover."""

import math

import numpy as np
import pytest

from icrl.rl import statistics
from icrl.rl.statistics import bootstrap_means, bootstrap_ratios, percentile_interval, proportion_interval


def interval(values: np.ndarray, num_resamples: int, confidence: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    return percentile_interval(bootstrap_means(values, num_resamples, seed), confidence)


@pytest.mark.parametrize("num_runs", [2, 5])
def test_few_runs_cover_the_truth_as_often_as_promised(num_runs):
    """Runs, tasks and streams all differ, runs the most; drawing few runs with replacement covers far less."""
    rng, shape = np.random.default_rng(0), (num_runs, 8, 2, 300)
    values = rng.normal(size=(num_runs, 1, 1, 300)) + 0.3 * rng.normal(size=(1, 8, 1, 300)) + rng.normal(size=shape)
    low, high = interval(values, 400, 0.95, seed=1)
    assert ((low < 0) & (high > 0)).mean() >= 0.93
    drawn = values.mean((1, 2))[rng.integers(num_runs, size=(400, num_runs))].mean(1)
    low, high = percentile_interval(drawn, 0.95)
    assert ((low < 0) & (high > 0)).mean() < 0.9


def test_runs_that_differ_alone_have_a_t_interval():
    """Of 1, 2 and 6 the mean is 3 and its standard error sqrt(7 / 3); the quantile of t with 2 degrees of freedom at
    0.975 is 4.303, that at 0.9 1.886."""
    values = np.array([1.0, 2.0, 6.0])[:, None, None].repeat(4, axis=1).repeat(5, axis=2)
    for confidence, t in ((0.95, 4.303), (0.8, 1.886)):
        low, high = interval(values, 40_000, confidence, seed=0)
        assert (3 - low, high - 3) == pytest.approx([t * (7 / 3) ** 0.5] * 2, rel=0.06)
    twice = np.stack([values, 10 - 2 * values], axis=-1)  # one draw of t moves all that is measured
    moved = bootstrap_means(twice, 300, seed=0)
    np.testing.assert_allclose(np.abs(moved[:, 1] - 4), 2 * np.abs(moved[:, 0] - 3))


def test_runs_of_one_split_are_one_draw():
    """Splits differ, seeds do not: three seeds of each of two splits tell no more than one, and cover the truth."""
    splits = [7, 7, 7, 4, 4, 4]
    of_splits = np.array([1.0, 5.0])[:, None, None].repeat(3, axis=1)
    of_runs = of_splits.repeat(3, axis=0)
    apart = bootstrap_means(of_splits, 500, 0, [7, 4])
    np.testing.assert_allclose(bootstrap_means(of_runs, 500, 0, splits), apart)
    ratios = bootstrap_ratios(of_runs, np.ones_like(of_runs), 500, 0, splits)
    np.testing.assert_allclose(ratios, apart)
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(2, 1, 1, 300)).repeat(3, axis=0) + 0.3 * rng.normal(size=(6, 1, 1, 300))
    low, high = percentile_interval(bootstrap_means(truth.repeat(4, axis=1), 400, 0, splits), 0.95)
    assert ((low < 0) & (high > 0)).mean() >= 0.93
    nothing = of_runs.copy()
    nothing[:3] = 0  # in one split
    low, high = percentile_interval(bootstrap_ratios(nothing, nothing, 500, 0, splits), 0.95)
    assert low < -1e8 and high > 1e8


def test_splits_that_share_their_seeds_cover_the_truth():
    """Seeds differ, and splits too: an interval over the splits alone is too narrow. What does not depend on the split
    has the t interval of its seeds."""
    rng, splits = np.random.default_rng(0), [split for split in range(5) for _ in range(3)]
    of_split, of_seed = rng.normal(size=(5, 1, 300)), rng.normal(size=(1, 3, 300))
    runs = (0.5 * of_split + of_seed + 0.3 * rng.normal(size=(5, 3, 300))).reshape(15, 1, 1, 300)
    low, high = percentile_interval(bootstrap_means(runs, 400, 0, splits), 0.95)
    assert ((low < 0) & (high > 0)).mean() >= 0.93
    low, high = percentile_interval(bootstrap_means(runs.reshape(5, 3, 1, 300), 400, 0), 0.95)
    assert ((low < 0) & (high > 0)).mean() < 0.9
    walks = np.tile([1.0, 2.0, 6.0], 5)[:, None, None]
    for resampled in (bootstrap_means(walks, 40_000, 0, splits), bootstrap_ratios(walks, walks**0, 40_000, 0, splits)):
        low, high = percentile_interval(resampled, 0.95)
        assert (3 - low, high - 3) == pytest.approx([4.303 * (7 / 3) ** 0.5] * 2, rel=0.06)
    grid = np.add.outer([1.0, 2.0, 6.0], [0.0, 0.0, 0.0]), np.add.outer([0.0, 0.0, 0.0], [1.0, 2.0, 6.0])
    one, other, both = (  # effects of splits and of seeds, and of both, which do not fall together
        np.ptp(percentile_interval(bootstrap_means(runs.reshape(9, 1, 1), 40_000, 0, splits[:9])))
        for runs in (*grid, sum(grid))
    )
    assert one == pytest.approx(other) and 1.2 * one < both < 1.8 * one
    few = bootstrap_means(walks[:4], 500, 0, splits[:4]) - 2.5  # of the second split there is one run
    one_each = bootstrap_means(np.array([3.0, 1.0])[:, None, None], 500, 0, [0, 1]) - 2
    np.testing.assert_allclose(few, one_each * ((9 / 16 + 1 / 16) / (1 / 2)) ** 0.5)


def test_a_split_with_most_of_the_runs_does_not_make_the_interval_narrow():
    rng, splits = np.random.default_rng(0), [0] * 10 + [1, 2, 3, 4]
    runs = rng.normal(size=(5, 600))[splits] + 0.1 * rng.normal(size=(14, 600))
    low, high = percentile_interval(bootstrap_means(runs[:, None, None], 400, 0, splits), 0.95)
    assert ((low < 0) & (high > 0)).mean() >= 0.9


@pytest.mark.parametrize(("number", "t"), [(2, 12.706), (3, 4.303), (5, 2.776), (31, 2.042)])
def test_the_interval_of_runs_is_that_of_students_distribution(number, t):
    """On both sides, whatever the seed: ends do not depend on a draw."""
    values = np.arange(number, dtype=np.float64)[:, None, None]
    half = t * values.std(ddof=1) / number**0.5
    for seed in range(3):
        low, high = percentile_interval(bootstrap_means(values, 2000, seed), 0.95)
        assert (values.mean() - low, high - values.mean()) == pytest.approx((half, half), rel=0.005)


@pytest.mark.parametrize("num_runs", [1, 3])
def test_resamples_equal_a_plain_loop(num_runs):
    """One draw of tasks for all runs, new streams for each task and run; several runs also draw t."""
    rng = np.random.default_rng(3)
    values = 2 * rng.normal(size=(num_runs, 1, 1)) + rng.normal(size=(1, 6, 1)) + rng.normal(size=(num_runs, 6, 4))
    error = np.sqrt(values.mean((1, 2)).var(ddof=1) / num_runs) if num_runs > 1 else 0.0
    means = []
    for _ in range(3000):
        tasks, runs = rng.integers(6, size=6), range(num_runs)
        redrawn = np.mean([values[run, task, rng.integers(4, size=4)] for run in runs for task in tasks])
        means.append(redrawn + (rng.standard_t(2) * error if error else 0.0))
    found = bootstrap_means(values, 8000, seed=0)
    for share in (0.05, 0.2, 0.5, 0.8, 0.95):
        assert np.quantile(found, share) == pytest.approx(np.quantile(means, share), abs=0.15 * error + 0.03)


def test_ratios_of_sums_by_hand():
    """Runs of ratios 1/2 and 1 have a standard error of 1/4, and the quantile of t with one degree of freedom at 0.9 is
    3.078. What has nothing is left out: of two tasks one, which a quarter of the resamples draws twice; or a run."""
    above, below = np.array([1.0, 6.0])[:, None, None], np.array([2.0, 6.0])[:, None, None]
    low, high = percentile_interval(bootstrap_ratios(above, below, 40_000, seed=0), 0.8)
    assert (low, high) == pytest.approx((7 / 8 - 3.078 / 4, 7 / 8 + 3.078 / 4), rel=0.06)
    found = bootstrap_ratios(np.array([[[3.0], [0]]]), np.array([[[4.0], [0]]]), 4000, seed=0)
    some = found[~np.isnan(found)]
    np.testing.assert_allclose(some, 0.75)
    assert 0.72 < len(some) / 4000 < 0.78 and percentile_interval(found, 0.9) == pytest.approx((0.75, 0.75))
    found = bootstrap_ratios(np.array([[[1.0]], [[0]]]), np.array([[[2.0]], [[0]]]), 100, seed=0)
    np.testing.assert_allclose(found, 0.5)


def test_ratios_of_columns_equal_those_of_each_alone():
    """Also where one run has nothing in one column, and no run in another."""
    rng = np.random.default_rng(1)
    below = rng.integers(3, size=(3, 4, 2, 5)).astype(float)
    below[0, ..., 1] = below[..., 2] = 0
    above = below * rng.random(below.shape)
    found = bootstrap_ratios(above, below, 200, seed=4)
    assert found.shape == (200, 5) and np.isnan(found[:, 2]).all() and not np.isnan(found[:, 0]).any()
    for column in range(5):
        np.testing.assert_allclose(found[:, column], bootstrap_ratios(above[..., column], below[..., column], 200, 4))
    rest = bootstrap_ratios(above[1:, ..., 1], below[1:, ..., 1], 50_000, 4)  # other draws of the same distribution
    for share in (0.1, 0.5, 0.9):
        assert np.quantile(found[:, 1], share) == pytest.approx(np.quantile(rest, share), abs=0.2)


def test_intervals_of_one_run_do_not_change():
    """Numbers that were published are found again."""
    low, high = interval(np.random.default_rng(3).normal(size=(1, 6, 4, 2)), 300, 0.9, seed=5)
    np.testing.assert_allclose(low, [-0.53809837, -0.36521093], atol=1e-8)
    np.testing.assert_allclose(high, [0.39565147, 0.44799409], atol=1e-8)


@pytest.mark.parametrize(
    ("successes", "number", "confidence", "low", "high"),
    [
        (23, 23, 0.95, 0.025 ** (1 / 23), 1),  # in closed form
        (0, 10, 0.95, 0, 1 - 0.025**0.1),
        (1, 1, 0.9, 0.05, 1),
        (81, 263, 0.95, 0.2527, 0.3676),  # of Newcombe (1998), table I
    ],
)
def test_exact_intervals_of_proportions(successes, number, confidence, low, high):
    assert proportion_interval(successes, number, confidence) == pytest.approx((low, high), abs=5e-5)


def test_exact_intervals_cover_by_the_binomial_sum():
    """Below its low end so many successes or more have less than 2.5 %, above it more; and so at the high end. A mean
    number of successes lies between its neighbours."""
    for number, successes in ((7, 3), (40, 39), (1000, 20)):
        low, high = proportion_interval(successes, number, 0.95)
        for p, tail in ((low, range(successes, number + 1)), (high, range(successes + 1))):
            chance = sum(math.comb(number, k) * p**k * (1 - p) ** (number - k) for k in tail)
            assert chance == pytest.approx(0.025, rel=1e-4)
    below, between, above = (proportion_interval(successes, 10, 0.95) for successes in (4, 4.5, 5))
    assert between == (below[0], above[1])


def test_episodes_are_treated_one_by_one_and_in_any_chunks(monkeypatch):
    values = np.random.default_rng(0).random((2, 5, 3, 4, 2)) < 0.4
    means = bootstrap_means(values, 200, seed=7)
    low, high = percentile_interval(means, 0.95)
    assert means.shape == (200, 4, 2) and low.shape == high.shape == (4, 2)
    assert (low < high).all()
    np.testing.assert_allclose(bootstrap_means(values[..., 2, 1], 200, seed=7), means[:, 2, 1])
    monkeypatch.setattr(statistics, "_CHUNK_BYTES", 1000)
    np.testing.assert_allclose(bootstrap_means(values, 200, seed=7), means)
    assert (bootstrap_means(values, 200, seed=8) != means).any()
