"""What an in-context evaluation found, as numbers: curves with intervals beside references, and the table.

G tasks, S streams per task, E episodes.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from src.evaluation.in_context import Adaptation
from src.evaluation.references import Expectation
from src.evaluation.statistics import bootstrap_interval, interquartile_mean
from src.schema import EvaluationConfig

SOLVED = 0.5  # a goal counts as solved if at least this part of its last episodes reaches it
MEASURES = ("success", "returns", "steps_to_goal")

Curves = dict[str, dict[str, list[float]]]


def tail_of(num_episodes: int) -> int:
    """How many episodes at the end are averaged as the final result: the last quarter."""
    return max(1, num_episodes // 4)


def curves_of(adaptation: Adaptation, config: EvaluationConfig, seed: int) -> Curves:
    """For each measure, the `mean` over tasks and streams of each episode and its interval, `low` to `high`, `[E]`."""
    curves = {}
    for name in MEASURES:
        values = getattr(adaptation, name)
        low, high = bootstrap_interval(values, config.num_bootstrap, config.confidence, seed)
        curves[name] = {"mean": values.mean((0, 1)).tolist(), "low": low.tolist(), "high": high.tolist()}
    return curves


def final_of(adaptation: Adaptation, config: EvaluationConfig, seed: int) -> dict[str, Any]:
    """Each measure over the last quarter of the episodes, with its interval; per task; and the fraction of tasks
    solved."""
    tail = tail_of(adaptation.success.shape[-1])
    final: dict[str, Any] = {}
    for name in MEASURES:
        values = getattr(adaptation, name)[..., -tail:].mean(-1)  # [G, S]
        low, high = bootstrap_interval(values, config.num_bootstrap, config.confidence, seed)
        final[name] = {
            "mean": float(values.mean()),
            "low": float(low),
            "high": float(high),
            "interquartile_mean": float(interquartile_mean(values)),
        }
        final[f"{name}_per_task"] = values.mean(1).tolist()
    final["fraction_solved"] = float((np.array(final["success_per_task"]) >= SOLVED).mean())
    return final


def constant_curves(expectation: Expectation, num_episodes: int) -> Curves:
    """An exact expectation of one episode as curves: the same for each episode, intervals of no width."""
    exact = {
        "success": expectation.success,
        "returns": expectation.episode_return,
        "steps_to_goal": expectation.steps_to_goal,
    }
    return {
        name: dict.fromkeys(("mean", "low", "high"), [float(values.mean())] * num_episodes)
        for name, values in exact.items()
    }


def table(policies: Mapping[str, Curves]) -> str:
    """Success at some episodes, and the mean over the last quarter of each measure, a row for each policy."""
    num_episodes = len(next(iter(policies.values()))["success"]["mean"])
    tail = tail_of(num_episodes)
    shown = [episode for episode in (1, 5, 20) if episode <= num_episodes - tail]
    last = f"{num_episodes - tail + 1}-{num_episodes}"
    header = ["success at episode", *map(str, shown), last, f"steps to goal {last}", f"return {last}"]
    rows = [header]
    for name, curves in policies.items():
        success = curves["success"]["mean"]
        finals = [
            float(np.mean(curves[measure]["mean"][-tail:])) for measure in ("success", "steps_to_goal", "returns")
        ]
        rows.append(
            [
                name,
                *(f"{success[episode - 1]:.3f}" for episode in shown),
                f"{finals[0]:.3f}",
                *(f"{x:.2f}" for x in finals[1:]),
            ]
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    lines = [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])
