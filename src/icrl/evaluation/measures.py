"""Measures of played episodes, per stream.

R runs, G tasks, S streams per task, E episodes. Arrays are `[R, G, S, ...]`.
"""

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from icrl.envs.exact import Expectation
from icrl.evaluation.in_context import Adaptation
from icrl.rl.statistics import Floats, Values

PARTS = {
    "held_out": "model, held-out tasks",
    "development": "model, development tasks",
    "train": "model, training tasks",
}
MEASURES = ("success", "returns", "steps_to_goal")
SOLVED = {"fraction_solved": 0.5, "fraction_solved_90": 0.9}  # success rate in a task's last episodes
REGRETS = {"regret_to_searcher": "searcher", "regret_to_covering_plan": "covering plan"}
SHARES = ("success", "success_after_first", *SOLVED)  # measures between 0 and 1
NEAR, SMOOTHED = 0.9, 3  # fraction of the optimum to reach, and the number of episodes averaged to tell
ROUNDING = 1e-9

Exact = Mapping[str, Mapping[str, Sequence[float]]]  # by policy (random, optimum) and measure: one number per task


def exact_numbers(expectations: Mapping[str, Expectation]) -> Exact:
    """Exact references in the form of the section `references`."""
    fields = {"success": "success", "returns": "episode_return", "steps_to_goal": "steps_to_goal"}.items()
    return {
        key: {name: getattr(found, field).tolist() for name, field in fields} for key, found in expectations.items()
    }


def shown_part(names: Collection[str]) -> str:
    """The main part of an evaluation: the held-out tasks, or the development tasks in their place."""
    return "held_out" if "held_out" in names else "development"


def tail_of(num_episodes: int) -> int:
    """Number of last episodes that make the final result: a quarter."""
    return max(1, num_episodes // 4)


def curve_cells(adaptation: Adaptation, exact: Exact, regrets: bool) -> dict[str, Values]:
    """Measures of each episode, `[R, G, S, E]` each."""
    cells: dict[str, Values] = {measure: getattr(adaptation, measure) for measure in MEASURES}
    if exact:
        optimum = np.array(exact["optimum"]["returns"])
        if (paid := optimum > 0).any():
            cells["fraction_of_optimum"] = adaptation.returns[:, paid] / optimum[paid, None, None]
        if regrets:
            cells["regret"] = adaptation.regret(optimum)
    return cells


def final_cells(
    curves: Mapping[str, Values], adaptation: Adaptation, exact: Exact, others: Mapping[str, Adaptation]
) -> dict[str, Values]:
    """Measures of each stream, `[R, G, S]` each; solved tasks `[R, G, 1]`. `others`: results of other policies on the
    same tasks, by name."""
    tail = tail_of(adaptation.returns.shape[-1])
    cells: dict[str, Values] = {
        name: values[..., -1] if name == "regret" else values[..., -tail:].mean(-1) for name, values in curves.items()
    }
    for name, part in SOLVED.items():
        cells[name] = cells["success"].mean(-1, keepdims=True) >= part - ROUNDING
    if exact:
        random, optimum = (np.array(exact[name]["returns"])[:, None, None] for name in ("random", "optimum"))
        if (room := (optimum > random + ROUNDING)[:, 0, 0]).any():
            share = (adaptation.returns[:, room] - random[room]) / (optimum - random)[room]
            cells["area"] = share.mean(-1)
    for name, other in REGRETS.items():
        if other in others:
            cells[name] = (others[other].returns.mean(2, keepdims=True) - adaptation.returns).sum(-1)
    return cells


def after_first(success: Values) -> tuple[Floats, Floats]:
    """Successes, and episodes, after the first success of each stream of `success` `[R, G, S, E]`, `[R, G, S]` each."""
    later = success.cumsum(axis=-1) > success  # a success came before
    return (success * later).sum(-1, dtype=np.float64), later.sum(-1, dtype=np.float64)
