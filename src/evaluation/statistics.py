"""What a set of streams says about the population they came from.

N tasks, S streams a task, R resamples; further axes (`...`, such as episodes) are treated one by one.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.floating[Any]] | NDArray[np.integer[Any]] | NDArray[np.bool_]
Floats = NDArray[np.float64]

_CHUNK_BYTES = 1 << 25  # of the counts that exist at a time


def bootstrap_interval(values: Values, num_resamples: int, confidence: float, seed: int) -> tuple[Floats, Floats]:
    """Percentile interval of the mean of `values` `[N, S, ...]`: its low and high ends, `[...]` each.

    The bootstrap is hierarchical: it draws N tasks with replacement, then S streams of each task drawn, so the
    interval covers new tasks as well as new luck. A resample is a table of how often each stream was drawn: a task
    drawn c times gives c * S draws among its streams. Means of resamples are then a matrix product.
    """
    num_tasks, num_streams = values.shape[:2]
    rng = np.random.default_rng(seed)
    task_draws = rng.multinomial(num_tasks, np.full(num_tasks, 1 / num_tasks), size=num_resamples)  # [R, N]
    per_stream = np.full(num_streams, 1 / num_streams)
    flat = values.reshape(num_tasks * num_streams, -1).astype(np.float64)
    means = np.empty((num_resamples, flat.shape[1]))
    chunk = max(1, _CHUNK_BYTES // (8 * len(flat)))
    for start in range(0, num_resamples, chunk):
        stop = start + chunk
        counts = rng.multinomial(task_draws[start:stop] * num_streams, per_stream)  # [chunk, N, S]
        means[start:stop] = counts.reshape(-1, len(flat)).astype(np.float64) @ flat / len(flat)
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, [tail, 1 - tail], axis=0)
    return low.reshape(values.shape[2:]), high.reshape(values.shape[2:])


def interquartile_mean(values: Values) -> Floats:
    """Mean of the middle half of all tasks and streams, `[N, S, ...] -> [...]` (Agarwal et al., 2021).

    Where a quarter is no whole number of values, those on the border count in part."""
    ordered = np.sort(values.reshape(-1, *values.shape[2:]), axis=0)
    edges = np.clip(np.arange(len(ordered) + 1), len(ordered) / 4, len(ordered) * 3 / 4)
    return np.asarray(np.tensordot(np.diff(edges), ordered, axes=1) / (len(ordered) / 2), dtype=np.float64)
