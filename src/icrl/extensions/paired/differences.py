"""Diagnostic of differences between the model and other policies on the same tasks, and their table.

R runs, G tasks, S streams per task, E episodes.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from icrl.contracts import Json
from icrl.evaluation.diagnostics import Diagnostic, Runs
from icrl.evaluation.in_context import Adaptation, EvaluationConfig
from icrl.evaluation.measures import (
    MEASURES,
    SURE,
    Cells,
    clip,
    intervals,
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
        others = {name: task_means(runs.episodes[name]) for name in COMPARED if name in runs.episodes}
        others |= {name: one for name, one in runs.exact.items() if name == "optimum"}
        given = results["protocol"]["optimum_is_bound"], runs.num_different.get(main, 0)
        ours = task_means(runs.episodes[main])
        if found := differences(ours, others, runs.options, runs.seed, runs.splits, *given):
            results["differences"] = found

    def tables(self, results: Json) -> list[str]:
        curves, found = all_curves(results), results.get("differences", {})
        measure, num_episodes = measure_of(curves), len(next(iter(curves.values()))["success"]["mean"])
        if not found or not all(measure in one for one in found.values()):  # earlier versions had no returns
            return []
        return [differences_table(found, num_episodes, measure)]


def task_means(played: Adaptation) -> dict[str, Floats]:
    """Means of each task over the last quarter of the episodes, `[R, G]`, by measure."""
    tail = tail_of(played.success.shape[-1])
    return {key: getattr(played, key)[..., -tail:].mean((2, 3)) for key in MEASURES}


def differences(
    ours: Mapping[str, Floats],
    others: Mapping[str, Mapping[str, Floats]],
    config: EvaluationConfig,
    seed: int,
    splits: Sequence[int] = (),
    optimum_is_bound: bool = False,
    num_different: int = 0,
) -> dict[str, Any]:
    """Paired differences of the model from others on the same tasks, by policy and measure, given `task_means` of all.
    `num_different`: as in `intervals`.

    If the success of no task differs by more than 1 - `SURE`, resamples cannot tell how many others do: the interval is
    at least that of other tasks of which 0 of n were drawn, won or lost. If all differ by nearly 1, see `widen`."""
    names = list(others)
    cells: Cells = {(name, key): (ours[key] - others[name][key])[..., None] for name in names for key in MEASURES}
    numbers = intervals(cells, config, seed, splits, {"success": (-1.0, 1.0)}, num_different)
    tasks = num_drawn(ours["success"].shape[1], splits, num_different)
    _, most = statistics.proportion_interval(0, tasks)
    for name in names:
        difference, number = ours["success"] - others[name]["success"], numbers[name]["success"]
        if (abs(difference) <= 1 - SURE + _ROUNDING).all():
            number |= {"low": min(number["low"], -most), "high": max(number["high"], most)}
        else:
            widen(number, difference, (-1.0, 1.0), tasks)
    if optimum_is_bound and "optimum" in numbers:
        clip(numbers["optimum"]["success"], (-1.0, 0.0))
        clip(numbers["optimum"]["returns"], (-math.inf, 0.0))
        clip(numbers["optimum"]["steps_to_goal"], (0.0, math.inf))
    return numbers


def differences_table(differences: Json, num_episodes: int, measure: str = "success") -> str:
    """One row per policy: paired differences of the model from it, with intervals."""
    last = tail_heading(num_episodes)
    shown = {"success": "success", "steps to goal": "steps_to_goal"} if measure == "success" else {"return": "returns"}
    rows = [["model minus another policy, task by task", *(f"{label} {last}" for label in shown)]]
    for name, numbers in differences.items():
        rows.append([name, *(interval_text(numbers[key], DIGITS.get(key, 2)) for key in shown.values())])
    return aligned(rows)
