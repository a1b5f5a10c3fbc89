"""How much each step of a history counts in the loss: a source is not the same at the start and at the end of its life.

N rows, T steps of each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from icrl.contracts import EnvSpec

if TYPE_CHECKING:
    from icrl.config.root import ObjectiveConfig

Floats = NDArray[np.float32]
Column = NDArray[np.integer]


def step_weights(config: ObjectiveConfig, spec: EnvSpec, reward: Column, done: NDArray[np.bool_]) -> Floats:
    """The weight of every step of rows with `reward` (indices into the reward values) and ends of episodes `done`, all
    `[N, T]`; 1 on average over whole lives, but for what is clipped.

    none: 1. recency: in proportion to the steps lived so far, 2 (t + 1) / (T + 1). improvement: what the rest of the
    episode brought, over what it brought all rows at that age,

        w_t = min((G_t - least) / (mean of G over rows and ages alike - least), max_weight),
        G_t = sum over k of discount^k r_{t+k}

    with k up to the end of the episode, ages alike within stretches of about as many steps as an episode has at most,
    and `least` the least G among them or 0, if that is less; where all are at the least, all count 1. So the model
    imitates what made the agents better at every age, above all the lucky episodes by which they learned, and not their
    failures."""
    num_rows, num_steps = reward.shape
    if config.weighting == "none":
        return np.ones((num_rows, num_steps), np.float32)
    if config.weighting == "recency":
        age = np.arange(1, num_steps + 1, dtype=np.float32)
        return np.tile(2 * age / (num_steps + 1), (num_rows, 1))
    gain = gains_to_go(np.array(spec.reward_values, np.float32)[reward], done, config.discount)
    for alike in np.array_split(gain, max(1, num_steps // spec.max_episode_steps), axis=1):  # views
        least = min(alike.min(), 0)
        mean = alike.mean() - least
        alike[:] = np.minimum((alike - least) / mean, config.max_weight) if mean > 0 else 1
    return gain


def gains_to_go(reward: Floats, done: NDArray[np.bool_], discount: float) -> Floats:
    """The discounted sum of the rewards from each step to the end of its episode, `[N, T]`."""
    gains = np.empty(reward.shape, np.float32)
    later = np.zeros(len(reward), np.float32)
    for t in reversed(range(reward.shape[1])):
        later = reward[:, t] + discount * later * ~done[:, t]
        gains[:, t] = later
    return gains
