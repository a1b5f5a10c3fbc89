"""What an evaluation found, as text: the table and the lines below it."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from icrl.contracts import EnvSpec, Json
from icrl.evaluation.measures import PARTS, shown_part, tail_of

Curves = Mapping[str, Mapping[str, list[float]]]


def source_label(name: str) -> str:
    """How a source is called in tables and pictures: A2C, PPO and DQN are abbreviations, the others words."""
    if name == "q_learning":
        return "Q-learning"
    return name.upper() if len(name) == 3 else name.replace("_", " ")


def solved(spec: EnvSpec) -> str:
    """What is said of a task that counts as solved."""
    return "whose best arm was found" if spec.success == "best_action" else "solved"


def probes_of(results: Json) -> dict[str, Curves]:
    """The curves of other decodings and of ablations, by label."""
    probes = [*results["decodings"].values(), *results["ablations"].values()]
    return {probe["label"]: probe["curves"] for probe in probes if probe["label"] not in results["curves"]}


def all_curves(results: Json) -> dict[str, Curves]:
    """All curves by label: the model's, those of its probes, then what it is compared with."""
    curves = results["curves"]
    ours = {label: curves[label] for label in PARTS.values() if label in curves}
    return ours | probes_of(results) | curves


def table(policies: Mapping[str, Curves]) -> str:
    """Success at some episodes, the mean over the last quarter of each measure, and where there are curves of it the
    regret of all episodes, a row for each policy."""
    num_episodes = len(next(iter(policies.values()))["success"]["mean"])
    tail = tail_of(num_episodes)
    shown = [episode for episode in (1, 5, 20) if episode <= num_episodes - tail]
    last = f"{num_episodes - tail + 1}-{num_episodes}"
    header = ["success at episode", *map(str, shown), last, f"steps to goal {last}", f"return {last}"]
    rows = [header]
    for name, curves in policies.items():
        success, steps, returns = (np.array(curves[key]["mean"]) for key in ("success", "steps_to_goal", "returns"))
        rows.append([name, *(f"{success[episode - 1]:.3f}" for episode in shown), f"{success[-tail:].mean():.3f}"])
        rows[-1] += [f"{values[-tail:].mean():.2f}" for values in (steps, returns)]
        if "regret" in curves:
            rows[-1].append(f"{curves['regret']['mean'][-1]:.2f}")
    if len(rows[-1]) > len(header):
        header.append(f"regret 1-{num_episodes}")
    return _aligned(rows)


def coverage_table(coverage: Mapping[str, Mapping[str, list[float]]]) -> str:
    """The share of the cells that was visited by the end of each episode without a goal, a row for each policy."""
    num_episodes = len(next(iter(coverage.values()))["mean"])
    rows = [["cells visited without a goal, by episode", *map(str, range(1, num_episodes + 1))]]
    rows += [[name, *(f"{share:.3f}" for share in curve["mean"])] for name, curve in coverage.items()]
    return _aligned(rows)


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their longest cell, and a line below the first row."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def summary(results: Json, spec: EnvSpec) -> str:
    """What is to be known beside the table of the tasks that the evaluation is about, a line each."""
    part = shown_part(results["final"])
    tasks = PARTS[part].removeprefix("model, ")
    final, confidence = results["final"][part], results["protocol"]["confidence"]
    num_tasks = results["protocol"]["num_tasks"][part]
    lines = [f"{tasks} {solved(spec)}: {final['fraction_solved']['mean']:.0%} of {num_tasks}"]
    if strict := final.get("fraction_solved_90"):
        lines[0] += f", {strict['mean']:.0%} in nine of ten of the last episodes"
    for name, meaning, digits in (
        ("success", f"success on {tasks} over the last episodes", 3),
        ("success_after_first", f"success on {tasks} after the first success", 3),
        ("fraction_of_optimum", "fraction of the optimum over the last episodes", 3),
        ("area", "area under the curve, from 0 for random to 1 for the optimum", 3),
        ("regret", f"regret on {tasks} over all episodes", 2),
        ("regret_to_searcher", "return that the searcher has more over all episodes", 2),
        ("regret_to_covering_plan", "return that the covering plan has more over all episodes", 2),
    ):
        if number := final.get(name):
            low, high = (f"{number[end]:.{digits}f}" for end in ("low", "high"))
            lines.append(f"{meaning}: {number['mean']:.{digits}f}, {confidence:.0%} interval {low} to {high}")
    if near := final.get("episodes_to_90"):
        lines.append(f"episodes to 90% of the optimum: {_episodes(near, confidence)}")
    return "\n".join(lines)


def _episodes(near: dict[str, Any], confidence: float) -> str:
    reached = "never" if near["episode"] is None else str(near["episode"])
    if not near["share_reached"]:
        return reached
    interval = f"{confidence:.0%} interval {near['low']:.0f} to {near['high']:.0f}"
    return f"{reached}, {interval} of the {near['share_reached']:.0%} of resamples that get there"
