"""What a set of streams says about the population they came from.

R runs (seeds), N tasks, S streams a task, B resamples; further axes (`...`, such as episodes) are treated one by one.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.floating[Any]] | NDArray[np.integer[Any]] | NDArray[np.bool_]
Floats = NDArray[np.float64]

_CHUNK_BYTES = 1 << 25  # of the counts that exist at a time


def bootstrap_means(values: Values, num_resamples: int, seed: int) -> Floats:
    """Means of resamples of `values` `[R, N, S, ...]`, `[B, ...]`.

    The bootstrap is stratified: it draws R runs with replacement and N tasks with replacement, one draw of tasks for
    all runs, as all runs play the same tasks; then S streams of each pair drawn. So its spread covers new training
    runs, new tasks and new luck. A resample is a table of how often each stream was drawn: a run drawn r times and a
    task drawn c times give r * c * S draws among their streams. Means of resamples are then a matrix product.
    """
    num_runs, num_tasks, num_streams = values.shape[:3]
    rng = np.random.default_rng(seed)
    run_draws, task_draws = (
        rng.multinomial(number, np.full(number, 1 / number), size=num_resamples) for number in (num_runs, num_tasks)
    )  # [B, R] and [B, N]
    per_stream = np.full(num_streams, 1 / num_streams)
    flat = values.reshape(num_runs * num_tasks * num_streams, -1).astype(np.float64)
    means = np.empty((num_resamples, flat.shape[1]))
    chunk = max(1, _CHUNK_BYTES // (8 * len(flat)))
    for start in range(0, num_resamples, chunk):
        here = slice(start, start + chunk)
        draws = run_draws[here, :, None] * task_draws[here, None, :] * num_streams
        counts = rng.multinomial(draws, per_stream)  # [chunk, R, N, S]
        means[here] = counts.reshape(-1, len(flat)).astype(np.float64) @ flat / len(flat)
    return means.reshape(num_resamples, *values.shape[3:])


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
