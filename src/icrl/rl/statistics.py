"""What a set of streams says about the population they came from.

R runs (seeds), N tasks, S streams a task, B resamples; further axes (`...`, such as episodes) are treated one by one.

Resamples draw N tasks with replacement, one draw for all runs, as all runs play the same tasks, and then S streams of
each of them in each run. So their spread covers new tasks and new luck. With one run that is all they cover. Of several
runs none is drawn anew: to draw a few with replacement spreads less than they do. Instead each resample is moved by

    t * sqrt(variance of the runs' own values / R)

with the unbiased variance, and t drawn from Student's distribution with R - 1 degrees of freedom, once for a resample
and all that is measured in it. For what varies between runs alone this is the t interval.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.floating[Any]] | NDArray[np.integer[Any]] | NDArray[np.bool_]
Floats = NDArray[np.float64]

_CHUNK_BYTES = 1 << 25  # of the counts that exist at a time


def bootstrap_means(values: Values, num_resamples: int, seed: int) -> Floats:
    """Means of resamples of `values` `[R, N, S, ...]`, `[B, ...]`."""
    means = _redrawn(values, num_resamples, seed)
    return means + _between_runs(values.mean((1, 2), dtype=np.float64), num_resamples, seed)


def bootstrap_ratios(above: Floats, below: Floats, num_resamples: int, seed: int) -> Floats:
    """The sum of `above` over the sum of `below`, `[R, N, S]` each, in resamples, `[B]`; fewer where in some of them
    nothing is `below`. A run with nothing `below` says nothing of the spread of runs."""
    sums = _redrawn(np.stack([above, below], axis=-1), num_resamples, seed)
    some = sums[:, 1] > 0
    of_runs = np.stack([above.sum((1, 2)), below.sum((1, 2))], axis=-1)
    of_runs = of_runs[of_runs[:, 1] > 0]
    return (sums[some, 0] / sums[some, 1]) + _between_runs(of_runs[:, 0] / of_runs[:, 1], num_resamples, seed)[some]


def _redrawn(values: Values, num_resamples: int, seed: int) -> Floats:
    """Means of resamples of tasks and streams, `[B, ...]`. A resample is a table of how often each stream was drawn: a
    task drawn c times gives c * S draws among its streams in each run. Means are then a matrix product."""
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


def _between_runs(of_runs: Floats, num_resamples: int, seed: int) -> Floats:
    """How far each resample is moved, `[B, ...]`, given what each run came to by itself, `[R, ...]`."""
    num_runs = len(of_runs)
    if num_runs < 2:
        return np.zeros((num_resamples, *of_runs.shape[1:]))
    t = np.random.default_rng((seed, num_runs)).standard_t(num_runs - 1, size=num_resamples)
    error = np.sqrt(of_runs.var(axis=0, ddof=1) / num_runs)
    return t.reshape(-1, *[1] * error.ndim) * error


def percentile_interval(resampled: Values, confidence: float) -> tuple[Floats, Floats]:
    """The low and high ends `[...]` of the middle part of `resampled` `[B, ...]` that holds `confidence` of it."""
    tail = (1 - confidence) / 2
    low, high = np.quantile(resampled, [tail, 1 - tail], axis=0)
    return low, high


def interquartile_mean(values: Values) -> Floats:
    """Mean of the middle half of the scores of all runs and tasks, `[R, N, S, ...] -> [...]` (Agarwal et al., 2021). A
    score is the mean over streams: what single streams come to is often 0 or 1.

    Where a quarter is no whole number of scores, those on the border count in part."""
    scores = values.mean(axis=2)
    ordered = np.sort(scores.reshape(-1, *scores.shape[2:]), axis=0)
    edges = np.clip(np.arange(len(ordered) + 1), len(ordered) / 4, len(ordered) * 3 / 4)
    return np.asarray(np.tensordot(np.diff(edges), ordered, axes=1) / (len(ordered) / 2), dtype=np.float64)
