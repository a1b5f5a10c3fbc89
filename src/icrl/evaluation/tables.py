"""Text report of an evaluation: tables of its policies, and a line for each number of the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from icrl.contracts import Json
from icrl.evaluation.measures import LATER, MEASURES, move_of, tail_of
from icrl.evaluation.protocol import PARTS, shown_part
from icrl.evaluation.report import Curves, all_curves
from icrl.spaces import EnvSpec

_FIRST, _AFTER, _MOVED = (1, 2, 3, 5, 10), (1, 2, 5), (1, 2, 5, LATER)  # shown episodes
_SUMMARY = (  # measure, description, digits
    ("success", "success on {tasks} over the last quarter of the episodes", 3),
    ("success_after_first", "success on {tasks} after the first success (1: a goal once found is never lost)", 3),
    ("fraction_of_optimum", "return over the last quarter of the episodes, as a fraction of the optimum", 3),
    ("area", "area under the curve of returns (0: random from first to last episode, 1: the optimum)", 3),
    ("regret", "returns lost to the optimum on {tasks} over all episodes (regret)", 2),
    ("regret_to_searcher", "returns lost to the searcher over all episodes (0: a search that forgets nothing)", 2),
    ("regret_to_covering_plan", "returns lost to the covering plan over all episodes (0: the shortest search)", 2),
)


def solved(spec: EnvSpec) -> str:
    """Words for a task that counts as solved."""
    return "whose best arm was found" if spec.success == "best_action" else "solved"


def table(policies: Mapping[str, Curves]) -> str:
    """One row per policy: success at some episodes, means over the last quarter, and the total regret if there is
    one."""
    num_episodes = len(next(iter(policies.values()))["success"]["mean"])
    tail = tail_of(num_episodes)
    shown = [episode for episode in (1, 5, 20) if episode <= num_episodes - tail]
    last = f"{num_episodes - tail + 1}-{num_episodes}"
    rows = [["success at episode", *map(str, shown), last, f"steps to goal {last}", f"return {last}"]]
    for name, curves in policies.items():
        means, success = [np.mean(curves[key]["mean"][-tail:]) for key in MEASURES], curves["success"]["mean"]
        rows.append([name, *(f"{success[episode - 1]:.3f}" for episode in shown), f"{means[0]:.3f}"])
        rows[-1] += [f"{means[2]:.2f}", f"{means[1]:.2f}"]
        if "regret" in curves:
            rows[-1].append(f"{curves['regret']['mean'][-1]:.2f}")
    if len(rows[-1]) > len(rows[0]):
        rows[0].append(f"regret 1-{num_episodes}")
    return _aligned(rows)


def coverage_table(coverage: Mapping[str, Mapping[str, list[float]]], gain: Mapping[str, Any]) -> str:
    """One row per policy: coverage by the end of each episode without a goal. The last row is the `gain` by memory, if
    there is one."""
    num_episodes = len(next(iter(coverage.values()))["mean"])
    rows = [["cells visited without a goal, by episode", *map(str, range(1, num_episodes + 1))]]
    named = {**coverage} | {f"{name}, minus wiped": curve for name, curve in gain.items()}
    return _aligned(rows + [[name, *(f"{share:.3f}" for share in curve["mean"])] for name, curve in named.items()])


def off_plan_table(results: Json) -> str:
    """One row per policy: new cells found after a random first episode, beside those of a blind replay."""
    rows = [["new cells after a random episode, by episode", "2", "3", "4", "blind replay", "difference"]]
    sections = [results[section] for section in ("off_plan", "blind_replay", "off_plan_gain")]
    for name in (name for name in sections[0] if all(name in section for section in sections)):
        found, replay, gain = (section[name] for section in sections)
        last = {end: gain[end][-1] for end in ("mean", "low", "high")}
        row = [name, *(f"{share:.3f}" for share in found["mean"]), f"{replay['mean'][-1]:.3f}"]
        rows.append([*row, interval_text(last, 3)])
    return _aligned(rows)


def differences_table(differences: Json, num_episodes: int) -> str:
    """One row per policy: paired differences of the model from it, with intervals."""
    last = f"{num_episodes - tail_of(num_episodes) + 1}-{num_episodes}"
    rows = [["model minus another policy, task by task", f"success {last}", f"steps to goal {last}"]]
    for name, found in differences.items():
        rows.append([name, interval_text(found["success"], 3), interval_text(found["steps_to_goal"], 2)])
    return _aligned(rows)


def interval_text(number: Mapping[str, float], digits: int = 3) -> str:
    """A mean with its interval."""
    mean, low, high = (f"{number[end]:.{digits}f}" for end in ("mean", "low", "high"))
    return f"{mean} [{low}, {high}]"


def first_success_table(policies: Mapping[str, Curves]) -> str:
    """One row per policy: the hazard of the first success in some episodes, and success some episodes after it. A dash:
    no stream is left to tell."""
    rows = [["first success in episode", *map(str, _FIRST), *(f"{lag} after" for lag in _AFTER)]]
    for name, curves in policies.items():
        if "first_success" in curves:
            shares = (("first_success", _FIRST), ("after_first_success", _AFTER))
            rows.append([name, *(_at(curves.get(key), number) for key, numbers in shares for number in numbers)])
    return _aligned(rows)


def moved_table(moved: Mapping[str, Any]) -> str:
    """One row per policy: success in some episodes after the goal moved, and visits of the old goal before the new."""
    num_episodes = len(next(iter(moved.values()))["curves"]["success"]["mean"])
    before, tail = move_of(num_episodes), tail_of(num_episodes)
    after = [later for later in _MOVED if before + later <= num_episodes]
    episodes, last = (0, *after), f"{num_episodes - tail + 1}-{num_episodes}"
    header = [f"goal moves after episode {before}, success at", *(str(before + later) for later in episodes), last]
    rows = [[*header, *(f"old first {before + later}" for later in after)]]
    for name, numbers in moved.items():
        success, old = numbers["curves"]["success"], numbers["curves"].get("other_goal_first")
        row = [
            name,
            *(_at(success, before + later) for later in episodes),
            f"{numbers['final']['success']['mean']:.3f}",
        ]
        rows.append([*row, *(_at(old, before + later) for later in after)])
    return _aligned(rows)


def _at(curve: Mapping[str, list[float]] | None, number: int) -> str:
    """Mean of a curve at its place `number` from 1 on; a dash if it has none there."""
    return f"{curve['mean'][number - 1]:.3f}" if curve and number <= len(curve["mean"]) else "-"


def tables(results: Json) -> list[str]:
    """All tables of an evaluation."""
    curves = all_curves(results)
    found = [table(curves), first_success_table(curves)]
    if moved := results.get("moved_goal"):
        found.append(moved_table(moved))
    if coverage := results.get("coverage"):
        found.append(coverage_table(coverage, results.get("coverage_gain", {})))
    if all(results.get(section) for section in ("off_plan", "blind_replay", "off_plan_gain")):
        found.append(off_plan_table(results))
    if differences := results.get("differences"):
        found.append(differences_table(differences, len(next(iter(curves.values()))["success"]["mean"])))
    return found


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    """Table with columns as wide as their longest cell, and a line below the header."""
    first, *others = (max(map(len, column)) for column in zip(*rows, strict=True))
    lines = ["  ".join([row[0].ljust(first), *map(str.rjust, row[1:], others)]) for row in rows]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def summary(results: Json, spec: EnvSpec) -> str:
    """One line per number of the main part: solved tasks, success, optimum, regrets."""
    part = shown_part(results["final"])
    tasks, final = PARTS[part].removeprefix("model, "), results["final"][part]
    confidence = f"{results['protocol']['confidence']:.0%} interval"
    num_tasks = results["protocol"]["num_tasks"][part]
    solved_ones = f"{final['fraction_solved']['mean']:.0%} of {num_tasks}"
    lines = [f"{tasks} {solved(spec)} in at least half of the last quarter of the episodes: {solved_ones}"]
    if strict := final.get("fraction_solved_90"):
        lines[0] += f", and {strict['mean']:.0%} in at least nine of ten of them"
    for name, description, digits in _SUMMARY:
        if number := final.get(name):
            mean, low, high = (f"{number[end]:.{digits}f}" for end in ("mean", "low", "high"))
            lines.append(f"{description.format(tasks=tasks)}: {mean}, {confidence} {low} to {high}")
    if near := final.get("episodes_to_90"):
        reached = "never" if near["episode"] is None else near["episode"]
        lines.append(f"first episode with 90% of the return of the optimum: {reached}")
        if share := near["share_reached"]:
            interval = f"{confidence} {near['low']:.0f} to {near['high']:.0f}"
            lines[-1] += f", {interval} (over tasks and streams drawn again, {share:.0%} of which get there)"
    if found := results.get("calibration"):
        means = f"confidence {found['confidence']:.3f}, right {found['accuracy']:.3f}"
        lines.append(f"calibration error on windows of development tasks: {found['error']:.3f} ({means})")
    return "\n".join(lines)
