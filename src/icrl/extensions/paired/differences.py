"""Diagnostic of differences between the model and other policies on the same tasks, and their table.

R runs, G tasks, S streams per task, E episodes.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from icrl.contracts import Json
from icrl.evaluation.diagnostics import Diagnostic, Runs
from icrl.evaluation.in_context import Adaptation, EvaluationConfig
from icrl.evaluation.measures import (
    MEASURES,
    SHARES,
    SURE,
    Bounds,
    Cells,
    clip,
    intervals,
    means_of,
    measure_of,
    num_drawn,
    tail_heading,
    tail_of,
    widen,
)
from icrl.evaluation.protocol import COMPARED, shown_part
from icrl.evaluation.report import CURVE, all_curves
from icrl.evaluation.tables import DIGITS, aligned, interval_text
from icrl.rl import statistics
from icrl.rl.statistics import Floats

_ROUNDING = 1e-9  # error of means of shares


class Differences(Diagnostic):
    """Differences of the model from policies of `COMPARED` and from the exact optimum. It plays nothing of its own."""

    name = "differences"
    forms = {"differences": {str: {key: dict.fromkeys(CURVE, float) for key in ("success", "steps_to_goal")}}}

    def add(self, results: Json, runs: Runs) -> None:
        main = shown_part(results["final"])
        others = {name: late_means(runs.episodes[name]) for name in COMPARED if name in runs.episodes}
        exact = {name: one for name, one in runs.exact.items() if name == "optimum"}
        others |= {name: {key: values[..., None] for key, values in one.items()} for name, one in exact.items()}
        given = results["protocol"]["optimum_is_bound"], runs.num_different.get(main, 0)
        ours = late_means(runs.episodes[main])
        if found := differences(ours, others, runs.options, runs.seed, runs.splits, runs.bounds, *given):
            results["differences"] = found

    def tables(self, results: Json) -> list[str]:
        curves, found = all_curves(results), results.get("differences", {})
        measure, num_episodes = measure_of(curves), len(next(iter(curves.values()))["success"]["mean"])
        if not found or not all(measure in one for one in found.values()):  # earlier versions had no returns
            return []
        return [differences_table(found, num_episodes, measure)]


def late_means(played: Adaptation) -> dict[str, Floats]:
    """Means of each stream over the last quarter of the episodes, `[R, G, S]`, by measure."""
    tail = tail_of(played.success.shape[-1])
    return {key: getattr(played, key)[..., -tail:].mean(-1) for key in MEASURES}


def differences(
    ours: Mapping[str, Floats],
    others: Mapping[str, Mapping[str, Floats]],
    config: EvaluationConfig,
    seed: int,
    splits: Sequence[int] = (),
    bounds: Bounds | None = None,
    optimum_is_bound: bool = False,
    num_different: int = 0,
) -> dict[str, Any]:
    """Paired differences of the model from others on the same tasks, by policy and measure, given `late_means` of all,
    which lie within `bounds`; an exact reference has one stream. `num_different`: as in `intervals`.

    If no task differs by more than 1 - `SURE` of what is possible, resamples cannot tell how many others do: the
    interval is at least that of other tasks of which 0 of n were drawn, won or lost. If all differ by nearly as much as
    is possible, see `widen`. Returns are widened only if the optimum is their bound, as in `intervals`."""
    names, keys = list(others), MEASURES if optimum_is_bound else ("success", "steps_to_goal")
    limits = {
        key: (-size, size) for key, ends in (SHARES | dict(bounds or {})).items() if (size := np.ptp(means_of(ends)))
    }
    cells: Cells = {(name, key): paired(ours[key], others[name][key]) for name in names for key in MEASURES}
    numbers = intervals(cells, config, seed, splits, limits, num_different)
    tasks = num_drawn(ours["success"].shape[1], splits, num_different)
    _, most = statistics.proportion_interval(0, tasks)
    for name, key in ((name, key) for name in names for key in keys if key in limits):
        difference, number, size = cells[name, key].mean(2), numbers[name][key], limits[key][1]
        if (abs(difference) <= (1 - SURE) * size + _ROUNDING).all():
            number |= {"low": min(number["low"], -most * size), "high": max(number["high"], most * size)}
        else:
            widen(number, difference, limits[key], tasks)
    if optimum_is_bound and "optimum" in numbers:
        for key in MEASURES:  # fewer steps are better
            worse, better = limits.get(key, (-math.inf, math.inf))
            clip(numbers["optimum"][key], (0.0, better) if key == "steps_to_goal" else (worse, 0.0))
    return numbers


def paired(ours: Floats, others: Floats) -> Floats:
    """Differences `[R, G, S]` of means of streams; streams are put together to as many groups in both, unless the
    others have one number for a task, which is exact."""
    number = math.gcd(ours.shape[2], others.shape[2]) if others.shape[2] > 1 else ours.shape[2]
    mine, theirs = (x.reshape(*x.shape[:2], -1, max(1, x.shape[2] // number)).mean(-1) for x in (ours, others))
    return mine - theirs


def differences_table(differences: Json, num_episodes: int, measure: str = "success") -> str:
    """One row per policy: paired differences of the model from it, with intervals."""
    last = tail_heading(num_episodes)
    shown = {"success": "success", "steps to goal": "steps_to_goal"} if measure == "success" else {"return": "returns"}
    rows = [["model minus another policy, task by task", *(f"{label} {last}" for label in shown)]]
    for name, numbers in differences.items():
        rows.append([name, *(interval_text(numbers[key], DIGITS.get(key, 2)) for key in shown.values())])
    return aligned(rows)
