"""Text report of an evaluation: the table and the lines below it."""

from collections.abc import Mapping, Sequence

import numpy as np

from icrl.contracts import EnvSpec, Json
from icrl.evaluation.measures import PARTS, shown_part, tail_of

Curves = Mapping[str, Mapping[str, list[float]]]
_SUMMARY = (  # measure, description, digits
    ("success", "success on {tasks} over the last episodes", 3),
    ("success_after_first", "success on {tasks} after the first success", 3),
    ("fraction_of_optimum", "fraction of the optimum over the last episodes", 3),
    ("area", "area under the curve, from 0 for random to 1 for the optimum", 3),
    ("regret", "regret on {tasks} over all episodes", 2),
    ("regret_to_searcher", "return that the searcher has more over all episodes", 2),
    ("regret_to_covering_plan", "return that the covering plan has more over all episodes", 2),
)


def source_label(name: str) -> str:
    """Name of a source in tables and plots: A2C, PPO and DQN are abbreviations, the others are words."""
    if name == "q_learning":
        return "Q-learning"
    return name.upper() if len(name) == 3 else name.replace("_", " ")


def solved(spec: EnvSpec) -> str:
    """Words for a task that counts as solved."""
    return "whose best arm was found" if spec.success == "best_action" else "solved"


def probes_of(results: Json) -> dict[str, Curves]:
    """Curves of other decodings and of ablations, by label."""
    probes = [*results["decodings"].values(), *results["ablations"].values()]
    return {probe["label"]: probe["curves"] for probe in probes if probe["label"] not in results["curves"]}


def all_curves(results: Json) -> dict[str, Curves]:
    """All curves by label: the model, its probes, then the references."""
    curves = results["curves"]
    ours = {label: curves[label] for label in PARTS.values() if label in curves}
    return ours | probes_of(results) | curves


def table(policies: Mapping[str, Curves]) -> str:
    """One row per policy: success at some episodes, means over the last quarter, and the total regret if there is
    one."""
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
    """One row per policy: coverage by the end of each episode without a goal."""
    num_episodes = len(next(iter(coverage.values()))["mean"])
    rows = [["cells visited without a goal, by episode", *map(str, range(1, num_episodes + 1))]]
    rows += [[name, *(f"{share:.3f}" for share in curve["mean"])] for name, curve in coverage.items()]
    return _aligned(rows)


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    """Table with columns as wide as their longest cell, and a line below the header."""
    first, *others = (max(map(len, column)) for column in zip(*rows, strict=True))
    lines = ["  ".join([row[0].ljust(first), *map(str.rjust, row[1:], others)]) for row in rows]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def summary(results: Json, spec: EnvSpec) -> str:
    """One line per number of the main part: solved tasks, success, optimum, regrets."""
    part = shown_part(results["final"])
    tasks = PARTS[part].removeprefix("model, ")
    final, confidence = results["final"][part], f"{results['protocol']['confidence']:.0%} interval"
    num_tasks = results["protocol"]["num_tasks"][part]
    lines = [f"{tasks} {solved(spec)}: {final['fraction_solved']['mean']:.0%} of {num_tasks}"]
    if strict := final.get("fraction_solved_90"):
        lines[0] += f", {strict['mean']:.0%} in nine of ten of the last episodes"
    for name, description, digits in _SUMMARY:
        if number := final.get(name):
            mean, low, high = (f"{number[end]:.{digits}f}" for end in ("mean", "low", "high"))
            lines.append(f"{description.format(tasks=tasks)}: {mean}, {confidence} {low} to {high}")
    if near := final.get("episodes_to_90"):
        lines.append(f"episodes to 90% of the optimum: {'never' if near['episode'] is None else near['episode']}")
        if share := near["share_reached"]:
            interval = f"{confidence} {near['low']:.0f} to {near['high']:.0f}"
            lines[-1] += f", {interval} of the {share:.0%} of resamples that get there"
    return "\n".join(lines)
