"""What an in-context evaluation found, as numbers: curves with intervals beside references, and the table.

G tasks, S streams per task, E episodes.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from src.contracts import EnvSpec
from src.envs.exact import Expectation
from src.evaluation.in_context import Adaptation
from src.evaluation.statistics import bootstrap_interval, interquartile_mean
from src.schema import EvaluationConfig

SOLVED = 0.5  # a task counts as solved if at least this part of its last episodes are successes
MEASURES = ("success", "returns", "steps_to_goal")

Curves = dict[str, dict[str, list[float]]]
Values = NDArray[np.float64]


def source_label(name: str) -> str:
    """How a source is called in tables and pictures: A2C, PPO and DQN are abbreviations, the others words."""
    if name == "q_learning":
        return "Q-learning"
    return name.upper() if len(name) == 3 else name.replace("_", " ")


def tail_of(num_episodes: int) -> int:
    """How many episodes at the end are averaged as the final result: the last quarter."""
    return max(1, num_episodes // 4)


def solved(spec: EnvSpec) -> str:
    """What is said of a task that counts as solved."""
    return "whose best arm was found" if spec.success == "best_action" else "solved"


def curves_of(adaptation: Adaptation, config: EvaluationConfig, seed: int, optimum: Values | None = None) -> Curves:
    """For each measure, the `mean` over tasks and streams of each episode and its interval, `low` to `high`, `[E]`.
    With the `optimum`, the best return to expect of each task `[G]`, also the regret of the episodes so far."""
    curves = {}
    measured = {name: getattr(adaptation, name) for name in MEASURES}
    if optimum is not None:
        measured["regret"] = adaptation.regret(optimum)
    for name, values in measured.items():
        low, high = bootstrap_interval(values, config.num_bootstrap, config.confidence, seed)
        curves[name] = {"mean": values.mean((0, 1)).tolist(), "low": low.tolist(), "high": high.tolist()}
    return curves


def final_of(
    adaptation: Adaptation, config: EvaluationConfig, seed: int, optimum: Values | None = None
) -> dict[str, Any]:
    """Each measure over the last quarter of the episodes, with its interval; per task; and the fraction of tasks
    solved. With the `optimum`, the best return to expect of each task `[G]`, also the regret of all episodes."""
    tail = tail_of(adaptation.success.shape[-1])
    final: dict[str, Any] = {}
    measured = {name: getattr(adaptation, name)[..., -tail:].mean(-1) for name in MEASURES}  # [G, S]
    if optimum is not None:
        measured["regret"] = adaptation.regret(optimum)[..., -1]
    for name, values in measured.items():
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


def constant_curves(expectation: Expectation, num_episodes: int, optimum: Values | None = None) -> Curves:
    """An exact expectation of one episode as curves: the same for each episode, intervals of no width. With the
    `optimum`, the best return to expect of each task `[G]`, also the regret, which grows evenly."""
    exact = {
        "success": expectation.success,
        "returns": expectation.episode_return,
        "steps_to_goal": expectation.steps_to_goal,
    }
    means = {name: [float(values.mean())] * num_episodes for name, values in exact.items()}
    if optimum is not None:
        missed = float((optimum - expectation.episode_return.numpy()).mean())
        means["regret"] = [missed * episode for episode in range(1, num_episodes + 1)]
    return {name: dict.fromkeys(("mean", "low", "high"), mean) for name, mean in means.items()}


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
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    lines = [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])
