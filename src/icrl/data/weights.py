"""Weights of the steps of histories in the loss of stage two. N rows, T steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from icrl.data.columns import Booleans, Floats
from icrl.spaces import EnvSpec

MOST = 20.0  # largest weight of a step
Ages = list[tuple[np.float32, np.float32, int]]  # least and mean return-to-go at each age, and the number of steps


def step_weights(
    weighting: str, discount: float, spec: EnvSpec, reward: Floats, done: Booleans, ages: Ages | None = None
) -> Floats:
    """Weight of each step in the loss by `objective.weighting`, given rewards and episode ends, `[N, T]` each.

    The mean weight over whole lives is 1, apart from clipping. `none`: 1. `recency`: 2 (t + 1) / (T + 1).
    `improvement`: the return-to-go over the mean return-to-go of all rows at that age,

        w_t = min((G_t - least) / (mean of G at that age - least), 20),    G_t = sum_k discount^k r_{t+k}

    with k up to the end of the episode. An age is a stretch of about `max_episode_steps` steps; `least` is its least
    G or 0, if that is less; all weights are 1 if all G are at the least. So the model imitates the steps after which
    an agent did better than others at its age. Early in training, these are the lucky successes.

    `ages` are those of all rows, if these are a part of them."""
    num_rows, num_steps = reward.shape
    if weighting == "none":
        return np.ones(reward.shape, np.float32)
    if weighting == "recency":
        return np.tile(2 * np.arange(1, num_steps + 1, dtype=np.float32) / (num_steps + 1), (num_rows, 1))
    gains = _gains(discount, reward, done)
    ages = ages or [(each.min(), each.mean(), each.size) for each in _by_age(gains, spec)]
    for alike, (lowest, middle, _) in zip(_by_age(gains, spec), ages, strict=True):
        least = min(lowest, 0)
        mean = middle - least
        alike[:] = np.minimum((alike - least) / mean, MOST) if mean > 0 else 1
    return np.ascontiguousarray(gains.T)


def ages_of(discount: float, spec: EnvSpec, reward: Floats, done: Booleans) -> Ages:
    """Least and mean return-to-go of these rows at each age."""
    return [(each.min(), each.mean(), each.size) for each in _by_age(_gains(discount, reward, done), spec)]


def all_ages(parts: Sequence[Ages]) -> Ages:
    """Those of all rows, from those of each part of them."""
    return [
        (
            min(least for least, _, _ in age),
            np.float32(np.average([mean for _, mean, _ in age], weights=[number for *_, number in age])),
            sum(number for *_, number in age),
        )
        for age in zip(*parts, strict=True)
    ]


def _gains(discount: float, reward: Floats, done: Booleans) -> Floats:
    """Return-to-go of each step, `[T, N]`."""
    values, going = reward.T.copy(), ~done.T.copy()
    gains, later = np.empty_like(values), np.zeros(len(reward), np.float32)
    for t in reversed(range(reward.shape[1])):
        gains[t] = later = values[t] + discount * later * going[t]
    return gains


def _by_age(gains: Floats, spec: EnvSpec) -> list[Floats]:
    """Views of the steps of each age."""
    return np.array_split(gains, max(1, len(gains) // spec.max_episode_steps))
