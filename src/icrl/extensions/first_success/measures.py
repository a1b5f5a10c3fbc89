"""Finding and keeping: the hazard of the first success, and success some episodes after it.

Success over episodes mixes how soon a stream finds the goal with how well it uses what it found. The hazard of episode
e is P(first success in episode e | none before), so it shows the search alone. Success k episodes after the first one
shows the memory alone. R runs, G tasks, S streams, E episodes.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from icrl.evaluation.measures import num_drawn, widen
from icrl.rl import statistics
from icrl.rl.statistics import Floats, Values

LAGS = 10  # most episodes after the first success
CURVES = ("first_success", "after_first_success")


def measures_of(
    success: Values, num_resamples: int, seed: int, splits: Sequence[int] = (), num_different: int = 0
) -> dict[str, dict[str, Any]]:
    """Shares with bootstrap intervals, by section and name, of the successes `[R, G, S, E]`; `splits`: of
    the tasks of each run, if there are several; `num_different`: as in `intervals`.

    In `curves`: `first_success` of episodes 1, 2, ..., up to the last before which some stream has none, with
    `at_risk`, the share of streams that have none before an episode; `after_first_success` of the episodes 1 to `LAGS`
    after the first, as far as some stream has them. In `final`: `success_after_first`, over all episodes after the
    first success. Shares of nothing are left out."""
    won = success.astype(np.float64)
    later = won.cumsum(axis=-1) > won  # a success of the stream came before
    after, exists = _after_first(won)
    above = np.concatenate([won * ~later, after, (won * later).sum(-1, keepdims=True)], axis=-1)
    below = np.concatenate([~later, exists, later.sum(-1, keepdims=True)], axis=-1, dtype=np.float64)
    resampled = statistics.bootstrap_ratios(above, below, num_resamples, seed, splits).clip(0, 1)
    known = below.sum((0, 1, 2)) > 0
    mean = above.sum((0, 1, 2))[known] / below.sum((0, 1, 2))[known]
    low, high = statistics.percentile_interval(resampled[:, known])
    columns = {"mean": mean, "low": low, "high": high}
    ends = np.cumsum([won.shape[-1], LAGS])
    first, lags, rest = (int(part.sum()) for part in np.split(known, ends))  # known shares come first in each part
    numbers: dict[str, dict[str, Any]] = {"curves": {}, "final": {}}
    for name, start, number in zip(CURVES, (0, first), (first, lags), strict=True):
        if number:
            numbers["curves"][name] = {key: values[start : start + number].tolist() for key, values in columns.items()}
    numbers["curves"][CURVES[0]]["at_risk"] = (~later).mean((0, 1, 2))[:first].tolist()
    if rest:
        numbers["final"]["success_after_first"] = {key: float(values[-1]) for key, values in columns.items()}
        with np.errstate(invalid="ignore"):
            scores = above[..., -1].sum(-1) / below[..., -1].sum(-1)
        tasks = num_drawn(scores.shape[1], splits, num_different)
        widen(numbers["final"]["success_after_first"], scores, (0.0, 1.0), tasks)
    return numbers


def _after_first(won: Floats) -> tuple[Floats, Values]:
    """Success 1 to `LAGS` episodes after the first, and whether there is such an episode, `[R, G, S, LAGS]` each."""
    num_episodes = won.shape[-1]
    episode = won.argmax(axis=-1)[..., None] + np.arange(1, LAGS + 1)
    exists = won.any(axis=-1, keepdims=True) & (episode < num_episodes)
    return np.take_along_axis(won, episode.clip(max=num_episodes - 1), axis=-1) * exists, exists


def expected(success: Floats, num_episodes: int) -> dict[str, dict[str, Any]]:
    """The curves of `measures_of` for tasks `[G]` where each episode succeeds with probability `success`, independent
    of the others. (So do the exact references.)"""
    chance = success[:, None]
    none_before = (1 - chance) ** np.arange(num_episodes)  # [G, E]
    early = 1 - (1 - chance) ** np.arange(num_episodes - 1, 0, -1)[:LAGS]  # [G, LAGS]: a first success k before the end
    curves: dict[str, dict[str, Any]] = {}
    for name, weight in zip(CURVES, (none_before, early), strict=True):
        if (some := weight.sum(0) > 0).any():
            mean = (chance * weight[:, some]).sum(0) / weight[:, some].sum(0)
            curves[name] = dict.fromkeys(("mean", "low", "high"), mean.tolist())
    curves[CURVES[0]]["at_risk"] = none_before.mean(0)[: len(curves[CURVES[0]]["mean"])].tolist()
    return curves
