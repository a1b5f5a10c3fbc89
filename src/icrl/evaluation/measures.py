"""Measures of episodes, and their means with bootstrap intervals.

R runs that differ in their seed, G tasks, S streams per task, E episodes, B resamples. Arrays are `[R, G, S, ...]`;
each number is the mean over the first three axes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from icrl.envs.core import EXPERT
from icrl.evaluation.in_context import Adaptation, EvaluationConfig
from icrl.rl import statistics
from icrl.rl.statistics import Floats, Values

MEASURES = ("success", "returns", "steps_to_goal")
SCALED = "scaled_return"
_SOLVED = {"fraction_solved": 0.5, "fraction_solved_90": 0.9}  # success rate in a task's last episodes
SHARES = dict.fromkeys(("success", *_SOLVED), (0.0, 1.0))
SURE = 0.9  # part of what is possible from which a task counts as solved where an interval is too narrow
NEAR, SMOOTHED = 0.9, 3  # fraction of the optimum to reach, and the number of episodes averaged to tell
_ROUNDING = 1e-9
Exact = Mapping[str, Mapping[str, Sequence[float]]]  # by policy (random, optimum) and measure: one number per task
Cells = dict[tuple[str, str], Values]  # by section and measure
Limit = float | Floats  # of a mean; if it is one for each task, `[R or 1, G]`, of theirs
Bounds = Mapping[str, tuple[Limit, Limit]]  # by measure: the least and the largest that is possible


def tail_of(num_episodes: int) -> int:
    """Number of last episodes that make the final result: a quarter."""
    return max(1, num_episodes // 4)


def tail_heading(num_episodes: int) -> str:
    """Numbers of these episodes, from 1, as tables show them: 31-40, or 4 for one alone."""
    first = num_episodes - tail_of(num_episodes) + 1
    return f"{first}-{num_episodes}" if first < num_episodes else f"{num_episodes}"


def measure_of(policies: Mapping[str, Mapping[str, Any]]) -> str:
    """Measure that tells how well `policies` with these curves do: success, or returns if none ever succeeds."""
    return "success" if any(any(curves["success"]["mean"]) for curves in policies.values()) else "returns"


def best_of(policies: Mapping[str, Any]) -> str:
    """Name of the reference among `policies` that knows its task; empty if there is none."""
    return next((name for name in ("optimum", EXPERT) if name in policies), "")


def scale_of(policies: Mapping[str, Mapping[str, Any]]) -> tuple[float, float] | None:
    """Mean returns of random play and of the best reference, given the curves of `policies` by name; None if one of the
    two is unknown, or random play is as good."""
    ends = [
        float(np.mean(policies[name]["returns"]["mean"])) for name in ("random", best_of(policies)) if name in policies
    ]
    return (ends[0], ends[1]) if len(ends) == 2 and ends[1] > ends[0] + _ROUNDING else None


def scaled(number: Mapping[str, Any], scale: tuple[float, float]) -> dict[str, Any]:
    """The returns `number`, with its interval, as a part of the way from the first to the second end of `scale`."""
    low, high = scale
    return {end: ((np.array(values) - low) / (high - low)).tolist() for end, values in number.items()}


def cells_of(played: Adaptation, exact: Exact, regrets: bool) -> Cells:
    """Measures by section and name: `curves` `[R, G, S, E]`, and `final` `[R, G, S]`, of solved tasks `[R, G, 1]`."""
    random, optimum = (np.array(exact[name]["returns"] if exact else []) for name in ("random", "optimum"))
    curves: dict[str, Values] = {measure: getattr(played, measure) for measure in MEASURES}
    if (paid := optimum > 0).any():
        curves["fraction_of_optimum"] = played.returns[:, paid] / optimum[paid, None, None]
    if regrets:
        curves["regret"] = (optimum[:, None, None] - played.returns).cumsum(axis=-1)
    tail = tail_of(played.returns.shape[-1])
    final: dict[str, Values] = {
        name: values[..., -1] if name == "regret" else values[..., -tail:].mean(-1) for name, values in curves.items()
    }
    final["total"] = played.returns.sum(-1)
    for name, part in _SOLVED.items():
        final[name] = final["success"].mean(-1, keepdims=True) >= part - _ROUNDING
    if (room := optimum > random + _ROUNDING).any():
        share = (played.returns[:, room] - random[room, None, None]) / (optimum - random)[room, None, None]
        final["area"] = share.mean(-1)
    if optimum.sum() > 0:
        margins = played.returns - NEAR * optimum[:, None, None]
        windows = sliding_window_view(margins, min(SMOOTHED, margins.shape[-1]), axis=-1)
        final["episodes_to_90"] = windows.mean(-1)  # see `_first_reached`
    return {(key, name): cell for key, cells in (("curves", curves), ("final", final)) for name, cell in cells.items()}


def num_drawn(tasks_of_run: int, splits: Sequence[int], num_different: int = 0) -> int:
    """Number of tasks that were drawn: `tasks_of_run` for each of the `splits` of the runs, once if there are none, but
    at most `num_different`, where it is known how many differ."""
    drawn = tasks_of_run * (len({*splits}) or 1)
    return min(drawn, num_different or drawn)


def intervals(
    cells: Cells,
    config: EvaluationConfig,
    seed: int,
    splits: Sequence[int] = (),
    bounds: Bounds | None = None,
    num_different: int = 0,
    *,
    optimum_is_bound: bool = False,
) -> dict[str, Any]:
    """Cells as `results.json` has them: means with intervals within `bounds`, and means per task unless the tasks of
    the runs differ, because they are on several splits. `num_different`: how many tasks of these differ, for splits may
    overlap (0: all). Returns are widened only if the optimum is their bound: others may be out of reach.

    Cells with equal R, G and S share their resamples, because drawing these takes the time."""
    means: dict[tuple[str, str], Floats] = {}
    by_shape = sorted(cells, key=lambda name: cells[name].shape[:3])
    for shape, group in groupby(by_shape, key=lambda name: cells[name].shape[:3]):
        names = list(group)
        flat = [cells[name].reshape(*shape, -1).astype(np.float64) for name in names]
        both = np.concatenate(flat, axis=-1)
        together = statistics.bootstrap_means(both, config.num_bootstrap, seed, splits)
        ends = np.cumsum([values.shape[-1] for values in flat])[:-1]
        for name, part in zip(names, np.split(together, ends, axis=-1), strict=True):
            means[name] = part.reshape(-1, *cells[name].shape[3:])
    written: dict[str, Any] = {}
    for (section, name), values in cells.items():
        resampled, numbers = means[section, name], written.setdefault(section, {})
        if name == "episodes_to_90":
            numbers[name] = _first_reached(values.mean((0, 1, 2)), resampled)
            continue
        numbers[name] = interval(values, resampled)
        if limits := (bounds or {}).get(name):
            low, high = ends = means_of(limits)
            reachable = optimum_is_bound or name != "returns"
            if math.prod(values.shape[:3]) == 1 and high - low < math.inf:  # one draw tells nothing of others
                numbers[name] |= {"low": np.full(values.shape[3:], low), "high": np.full(values.shape[3:], high)}
            if section == "final" and reachable and 0 < high - low < math.inf:
                scores, tasks = values.mean(2), num_drawn(values.shape[1], splits, num_different)
                widen(numbers[name], scores, limits, tasks, exact=name in _SOLVED)
            clip(numbers[name], ends)
        if section == "final" and name in (*MEASURES, "regret") and not splits:
            numbers[f"{name}_per_task"] = values.mean((0, 2)).tolist()
    return written


def means_of(limits: tuple[Limit, Limit]) -> tuple[float, float]:
    """Least and largest possible mean over tasks."""
    return float(np.mean(limits[0])), float(np.mean(limits[1]))


def widen(
    number: dict[str, Any], scores: Floats, limits: tuple[Limit, Limit], num_tasks: int, exact: bool = False
) -> None:
    """Widen the interval of `number`, of which tasks have `scores` `[R, G]` within `limits` (NaN: none), where
    resamples of the tasks cannot tell how many others fail.

    If all scores reach `SURE` of what is possible, n of n tasks do, and the low end is at most the exact one of that
    share; if all are as near to the other limit, the high end is at least that of 0 of n. A task is one draw, in
    however many runs it was played, so n are the `num_tasks` drawn, or those of them with a score. An `exact`
    number is a share of tasks, and has the exact interval, with several runs the wider of both."""
    tasks = int(num_tasks * (~np.isnan(scores)).mean() + _ROUNDING)
    span = np.subtract(limits[1], limits[0])
    reached = np.divide(scores - limits[0], span, out=np.full(scores.shape, np.nan), where=span > 0)
    (low, high), ends = means_of(limits), (number["low"], number["high"])
    if exact:
        exact_ends = statistics.proportion_interval(tasks * number["mean"], tasks)
        ends = exact_ends if len(scores) == 1 else (min(ends[0], exact_ends[0]), max(ends[1], exact_ends[1]))
    elif np.nanmin(reached) >= SURE - _ROUNDING:
        least, _ = statistics.proportion_interval(tasks, tasks)
        ends = min(ends[0], low + (high - low) * least), ends[1]
    elif np.nanmax(reached) <= 1 - SURE + _ROUNDING:
        _, most = statistics.proportion_interval(0, tasks)
        ends = ends[0], max(ends[1], low + (high - low) * most)
    number["low"], number["high"] = ends


def clip(number: dict[str, Any], limits: tuple[float, float]) -> None:
    """Clip both ends to `limits`, but not beyond the mean, which may leave them by luck."""
    low, high, mean = (np.array(number[end]) for end in ("low", "high", "mean"))
    number["low"] = np.minimum(low.clip(*limits), mean).tolist()
    number["high"] = np.maximum(high.clip(*limits), mean).tolist()


def interval(values: Values, means: Values) -> dict[str, Any]:
    """Mean of `values`, and the interval of the resampled `means`."""
    low, high = statistics.percentile_interval(means)
    return {"mean": values.mean((0, 1, 2)).tolist(), "low": low.tolist(), "high": high.tolist()}


def _first_reached(margin: Floats, means: Floats) -> dict[str, Any]:
    """Number of the first episode whose `margin` `[E]` is not negative, with an interval over resamples `[B, E]`."""
    reached = np.concatenate([margin[None], means]) >= -_ROUNDING  # [1 + B, E]
    first = np.where(reached.any(axis=1), 1.0 + reached.argmax(axis=1), np.nan)
    reached_at = first[1:][~np.isnan(first[1:])]
    low, high = map(float, statistics.percentile_interval(reached_at)) if len(reached_at) else (None, None)
    episode = None if np.isnan(first[0]) else int(first[0])
    return {"episode": episode, "low": low, "high": high, "share_reached": len(reached_at) / len(means)}
