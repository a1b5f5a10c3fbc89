"""Text report of an evaluation: its result in short, tables of its policies, a line for each number of the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from icrl.contracts import Json
from icrl.evaluation.diagnostics import diagnostics
from icrl.evaluation.measures import SCALED, best_of, measure_of, tail_heading, tail_of
from icrl.evaluation.protocol import ABLATIONS, PARTS, shown_part
from icrl.evaluation.report import Curves, all_curves
from icrl.spaces import EnvSpec

LABELS = {"success": "success", "returns": "return"}
DIGITS = {"success": 3, "returns": 2}
_SUMMARY = (  # measure, description, digits; first the measure that the evaluation is told by
    *((key, label + " on {tasks} over the last quarter of the episodes", DIGITS[key]) for key, label in LABELS.items()),
    (SCALED, "the same, scaled: 0 is random play, 1 the {best}", 3),
    ("fraction_of_optimum", "return over the last quarter of the episodes, as a fraction of the optimum", 3),
    ("area", "area under the curve of returns (0: random from first to last episode, 1: the optimum)", 3),
    ("regret", "returns lost to the optimum on {tasks} over all episodes (regret)", 2),
)


def solved(spec: EnvSpec) -> str:
    """Words for a task that counts as solved."""
    return "whose best arm was found" if spec.success == "best_action" else "solved"


def table(policies: Mapping[str, Curves]) -> str:
    """One row per policy: success at some episodes, means over the last quarter, and the total regret if there is one.
    If no policy has a success, returns take its place."""
    num_episodes, measure = len(next(iter(policies.values()))["success"]["mean"]), measure_of(policies)
    tail, digits = tail_of(num_episodes), DIGITS[measure]
    shown = [episode for episode in (1, 5, 20) if episode <= num_episodes - tail]
    last = tail_heading(num_episodes)
    further = {"steps to goal": "steps_to_goal", "return": "returns"} if measure == "success" else {"scaled": SCALED}
    further = {label: key for label, key in further.items() if all(key in curves for curves in policies.values())}
    rows = [[f"{LABELS[measure]} at episode", *map(str, shown), last, *(f"{label} {last}" for label in further)]]
    for name, curves in policies.items():
        curve = curves[measure]["mean"]
        values = [*(curve[episode - 1] for episode in shown), np.mean(curve[-tail:])]
        rows.append([name, *(f"{value:.{digits}f}" for value in values)])
        rows[-1] += [f"{np.mean(curves[key]['mean'][-tail:]):.2f}" for key in further.values()]
        if "regret" in curves:
            rows[-1].append(f"{curves['regret']['mean'][-1]:.2f}")
    if len(rows[-1]) > len(rows[0]):
        rows[0].append(f"regret 1-{num_episodes}")
    return aligned(rows)


def interval_text(number: Mapping[str, float], digits: int = 3) -> str:
    """A mean with its interval."""
    mean, low, high = (f"{number[end]:.{digits}f}" for end in ("mean", "low", "high"))
    return f"{mean} [{low}, {high}]"


def at(curve: Mapping[str, list[float]] | None, number: int) -> str:
    """Mean of a curve at its place `number` from 1 on; a dash if it has none there."""
    return f"{curve['mean'][number - 1]:.3f}" if curve and number <= len(curve["mean"]) else "-"


def tables(results: Json) -> list[str]:
    """All tables of an evaluation."""
    of_extensions = [text for diagnostic in diagnostics() for text in diagnostic.tables(results)]
    return [table(all_curves(results)), *of_extensions]


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Table with columns as wide as their longest cell, and a line below the header."""
    first, *others = (max(map(len, column)) for column in zip(*rows, strict=True))
    lines = ["  ".join([row[0].ljust(first), *map(str.rjust, row[1:], others)]) for row in rows]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def in_short(results: Json) -> str:
    """The result in one sentence: how the model begins and ends, beside the same without its context, random play and
    the best policy that is known. If no policy has a success, it speaks of returns, and says how to define success."""
    curves = all_curves(results)
    measure, best, label = measure_of(curves), best_of(curves), PARTS[shown_part(results["final"])]
    knowing = f"the {best.partition(',')[0]}"
    tail = tail_of(len(curves[label][measure]["mean"]))

    def late(name: str, key: str = measure) -> str:
        return f"{np.mean(curves[name][key]['mean'][-tail:]):.2f}"

    begin = f"{curves[label][measure]['mean'][0]:.2f}"
    others = {ABLATIONS["wiped"]: "with its context wiped at each reset", "random": "random play", best: knowing}
    there = ", ".join(f"{late(name)} {words}" for name, words in others.items() if name in curves)
    lines = [f"{label}: {LABELS[measure]} {begin} in episode 1, {late(label)} in the last quarter", "of the episodes"]
    lines[1] += f" (there {there})" if there else ""
    if measure == "returns":
        if SCALED in curves[label]:
            lines[1] += ","
            lines += [f"which is {late(label, SCALED)} of the way from random play to {knowing}."]
        lines += ["No policy had a success, so these are returns."]
        if "success" in results["config"]["env"]:
            lines[-1] += " To define success: env.success=return"
            lines += ["env.success_return=LEAST, or another rule of env.success (docs/worlds.md)."]
    return "\n".join(f"{'' if number else 'in short':14}{line}" for number, line in enumerate(lines))


def summary(results: Json, spec: EnvSpec) -> str:
    """One line per number of the main part: solved tasks, success, optimum, regrets. If no policy has a success, its
    return takes the place of the first two."""
    part, curves = shown_part(results["final"]), all_curves(results)
    measure, best = measure_of(curves), best_of(curves).partition(",")[0]
    tasks, final, lines = PARTS[part].removeprefix("model, "), results["final"][part], list[str]()
    confidence = f"{results['protocol']['confidence']:.0%} interval"
    num_tasks = results["protocol"]["num_tasks"][part]
    if measure == "success":
        solved_ones = f"{final['fraction_solved']['mean']:.0%} of {num_tasks}"
        lines += [f"{tasks} {solved(spec)} in at least half of the episodes of the last quarter: {solved_ones}"]
        if strict := final.get("fraction_solved_90"):
            lines[0] += f", and {strict['mean']:.0%} in at least nine tenths of them"
    for name, description, digits in _SUMMARY:
        if (number := final.get(name)) and name not in LABELS.keys() - {measure}:
            mean, low, high = (f"{number[end]:.{digits}f}" for end in ("mean", "low", "high"))
            lines.append(f"{description.format(tasks=tasks, best=best)}: {mean}, {confidence} {low} to {high}")
    if near := final.get("episodes_to_90"):
        reached = "never" if near["episode"] is None else near["episode"]
        lines.append(f"first episode with 90% of the return of the optimum: {reached}")
        if share := near["share_reached"]:
            interval = f"{confidence} {near['low']:.0f} to {near['high']:.0f}"
            lines[-1] += f", {interval} (over resampled tasks and streams, {share:.0%} of which get there)"
    return "\n".join(lines)
