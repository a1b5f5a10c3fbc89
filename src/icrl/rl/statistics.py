"""Bootstrap intervals of means of returns over runs, tasks and streams.

R runs (seeds), N tasks, S streams per task, B resamples; further axes (`...`, such as episodes) are treated one by one.

A resample draws N tasks with replacement, the same for all runs, then S streams of each drawn task in each run. Runs
are not drawn, because a few runs drawn with replacement spread too little. Instead each resample of R > 1 runs is moved
by t * sqrt(variance of the runs' own values / R), with the unbiased variance and one t per resample from Student's
distribution with R - 1 degrees of freedom: B equally likely quantiles in random order, because draws would leave an
error of a tenth at the ends of few runs. For values that vary between runs alone this is the t interval.

Runs on several `splits` of the tasks, one number for each run, have tasks of their own. Those of one split share these
and are no independent draws, so the mean of a split is one number. It weighs as much as its share w of the runs, and
the sum of w^2 takes the place of 1 / R. If all splits have as many runs, the k-th runs share a seed, and the mean of a
seed is one number too. Each resample is moved by one t for the splits and by another for the seeds. What a split and a
seed make together is counted in both, so the interval is rather too wide.

Where all tasks are solved, no resample holds one that is not, so such an interval has no width. `proportion_interval`
is exact there.
"""

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.floating[Any]] | NDArray[np.integer[Any]] | NDArray[np.bool_]
Floats = NDArray[np.float64]
CONFIDENCE = 0.95  # coverage of all intervals

_ROUNDING = 1e-9
_FAR = 1e9  # from any ratio
_CHUNK_BYTES = 1 << 25  # memory for the table of draws


def bootstrap_means(values: Values, num_resamples: int, seed: int, splits: Sequence[int] = ()) -> Floats:
    """Means of resamples of `values` `[R, N, S, ...]`, `[B, ...]`; `splits`: of each run, if there are several."""
    of_runs = values.mean((1, 2), dtype=np.float64)
    means = of_runs.mean(0) if splits else _resampled_means(values, num_resamples, seed)
    for factor, levels in enumerate(_factors(len(of_runs), splits)):
        of_levels = np.stack([of_runs[level].mean(0) for level in levels])
        means = means + _offsets(of_levels, [*map(len, levels)], num_resamples, seed, factor)
    return means


def bootstrap_ratios(above: Floats, below: Floats, num_resamples: int, seed: int, splits: Sequence[int] = ()) -> Floats:
    """Sum of `above` over sum of `below`, `[R, N, S, ...]` each, in resamples, `[B, ...]`; NaN in a resample in which
    `below` sums to 0. Runs, splits or seeds in which it does are left out; if one split is left, resamples are far off.
    `splits`: as in `bootstrap_means`."""
    both = np.stack([above, below], axis=-1)
    sums = both.mean((0, 1, 2)) if splits else _resampled_means(both, num_resamples, seed)
    of_runs, ratios = both.sum((1, 2)), _quotient(sums[..., 0], sums[..., 1])
    for factor, levels in enumerate(_factors(len(of_runs), splits)):
        own = np.stack([of_runs[level].sum(0) for level in levels])
        of_levels = _quotient(own[..., 0], own[..., 1])
        offsets = _offsets(of_levels, [*map(len, levels)], num_resamples, seed, factor)
        if splits and not factor:  # one that has a value alone tells nothing of the others
            alone = (~np.isnan(of_levels)).sum(0) == 1
            offsets[::2, alone], offsets[1::2, alone] = -_FAR, _FAR
        ratios = ratios + offsets
    return ratios


def _factors(num_runs: int, splits: Sequence[int]) -> list[list[list[int]]]:
    """Numbers of the runs of each level of each factor: runs, or splits, and seeds too if all have as many runs."""
    if not splits:
        return [[[run] for run in range(num_runs)]]
    of_splits = [[run for run, own in enumerate(splits) if own == split] for split in dict.fromkeys(splits)]
    equal = len({len(runs) for runs in of_splits}) == 1
    return [of_splits, *([[list(runs) for runs in zip(*of_splits, strict=True)]] if equal else [])]


def _quotient(above: Floats, below: Floats) -> Floats:
    """`above / below`, NaN where `below` is 0."""
    return np.divide(above, below, out=np.full(above.shape, np.nan), where=below > 0)


def _resampled_means(values: Values, num_resamples: int, seed: int) -> Floats:
    """Means over resampled tasks and streams, `[B, ...]`, as products with a table that counts the draws of each
    stream: a task drawn c times gives c * S draws among its streams in each run."""
    num_runs, num_tasks, num_streams = values.shape[:3]
    rng = np.random.default_rng(seed)
    task_draws = rng.multinomial(num_tasks, np.full(num_tasks, 1 / num_tasks), size=num_resamples)  # [B, N]
    per_stream = np.full(num_streams, 1 / num_streams)
    flat = values.reshape(num_runs * num_tasks * num_streams, -1).astype(np.float64)
    means = np.empty((num_resamples, flat.shape[1]))
    chunk = max(1, _CHUNK_BYTES // (8 * len(flat)))
    for start in range(0, num_resamples, chunk):
        draws = task_draws[start : start + chunk, None, :].repeat(num_runs, axis=1) * num_streams
        counts = rng.multinomial(draws, per_stream)  # [chunk, R, N, S]
        means[start : start + chunk] = counts.reshape(-1, len(flat)).astype(np.float64) @ flat / len(flat)
    return means.reshape(num_resamples, *values.shape[3:])


def _offsets(of_levels: Floats, sizes: Sequence[int], num_resamples: int, seed: int, factor: int) -> Floats:
    """The t * standard error by which each resample is moved, `[B, ...]`, given the own value of each run, split or
    seed, `[R, ...]`, and of how many runs it is; one whose value is NaN has none. Each `factor` has a t of its own."""
    flat = of_levels.reshape(len(of_levels), -1)
    known = ~np.isnan(flat)
    weights = known * np.array(sizes, np.float64)[:, None]
    spread = (weights**2).sum(0) / np.maximum(weights.sum(0), 1) ** 2
    num_levels, offsets = known.sum(axis=0), np.zeros((num_resamples, flat.shape[1]))
    for number in np.unique(num_levels[num_levels > 1]).tolist():
        columns = num_levels == number
        t = np.random.default_rng((seed, number, factor)).permutation(_student_quantiles(num_resamples, number - 1))
        variance = np.nanvar(flat[:, columns], axis=0, ddof=1)
        offsets[:, columns] = t[:, None] * np.sqrt(variance * spread[columns])
    return offsets.reshape(num_resamples, *of_levels.shape[1:])


@cache
def _student_quantiles(count: int, freedom: int) -> Floats:
    """Quantiles i / (count - 1) of Student's distribution, as `percentile_interval` reads them, by the trapezoid rule:
    the angle arctan(t / sqrt(v)) has a density in proportion to cos^(v - 1) for `freedom` v. The first and the last one
    stand a little inside, and are finite."""
    angle = np.linspace(-math.pi / 2, math.pi / 2, 2**15 + 1)
    density = np.cos(angle) ** (freedom - 1)
    below = np.append(0.0, (density[1:] + density[:-1]).cumsum())
    share = (np.arange(count) / max(1, count - 1)).clip(0.25 / count, 1 - 0.25 / count)
    return math.sqrt(freedom) * np.tan(np.interp(share, below / below[-1], angle))


def percentile_interval(resampled: Values, confidence: float = CONFIDENCE) -> tuple[Floats, Floats]:
    """Low and high ends `[...]` of the central part of `resampled` `[B, ...]` that holds `confidence` of it. Resamples
    without a value, NaN, are left out."""
    tail = (1 - confidence) / 2
    quantile = np.nanquantile if np.isnan(resampled).any() else np.quantile
    low, high = quantile(resampled, [tail, 1 - tail], axis=0)
    return low, high


def proportion_interval(successes: float, number: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Exact interval of a probability of which `number` independent draws had so many `successes` (Clopper and Pearson,
    1934, doi.org/10.1093/biomet/26.4.404). A mean number of successes is rounded away from each end."""
    tail = (1 - confidence) / 2
    low = _least_probability(math.floor(successes + _ROUNDING), number, tail)
    return low, 1 - _least_probability(math.floor(number - successes + _ROUNDING), number, tail)


@cache
def _least_probability(successes: int, number: int, tail: float) -> float:
    """Probability p at which `number` draws have at least so many `successes` with the probability `tail`, by halving;
    0 without a success."""
    drawn = np.arange(successes, number + 1)
    log_factorial = np.append(0.0, np.log(np.arange(1, number + 1)).cumsum())
    log_ways = log_factorial[number] - log_factorial[drawn] - log_factorial[number - drawn]
    low, high = 0.0, 1.0
    while successes and high - low > _ROUNDING:
        p = (low + high) / 2
        log_probability = log_ways + drawn * math.log(p) + (number - drawn) * math.log1p(-p)
        low, high = (p, high) if np.exp(log_probability).sum() < tail else (low, p)
    return low
