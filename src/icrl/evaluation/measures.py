"""What is measured of played episodes, of each stream by itself.

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
SOLVED = {"fraction_solved": 0.5, "fraction_solved_90": 0.9}  # part of a task's last episodes that are to be successes
REGRETS = {"regret_to_searcher": "searcher", "regret_to_covering_plan": "covering plan"}
SHARES = ("success", "success_after_first", *SOLVED)  # measures that lie between 0 and 1
NEAR, SMOOTHED = 0.9, 3  # part of the optimum, and episodes that are averaged to tell when it is reached
ROUNDING = 1e-9

Exact = Mapping[str, Mapping[str, Sequence[float]]]  # by policy, random or optimum, and measure: a number for each task


def exact_numbers(expectations: Mapping[str, Expectation]) -> Exact:
    """Exact references as `references` holds them."""
    return {
        name: {
            "success": found.success.tolist(),
            "returns": found.episode_return.tolist(),
            "steps_to_goal": found.steps_to_goal.tolist(),
        }
        for name, found in expectations.items()
    }


def shown_part(names: Collection[str]) -> str:
    """The one of `PARTS` that an evaluation is about: the held-out tasks, or development tasks in their place."""
    return "held_out" if "held_out" in names else "development"


def tail_of(num_episodes: int) -> int:
    """How many episodes at the end are averaged as the final result: the last quarter."""
    return max(1, num_episodes // 4)


def curve_cells(adaptation: Adaptation, exact: Exact, regrets: bool) -> dict[str, Values]:
    """What is measured in each episode, `[R, G, S, E]` each."""
    cells: dict[str, Values] = {measure: getattr(adaptation, measure) for measure in MEASURES}
    if exact:
        optimum = np.array(exact["optimum"]["returns"])
        if (paid := optimum > 0).any():
            cells["fraction_of_optimum"] = adaptation.returns[:, paid] / optimum[paid, None, None]
        if regrets:
            cells["regret"] = adaptation.regret(optimum)
    return cells


def final_cells(
    curves: Mapping[str, Values], adaptation: Adaptation, exact: Exact, references: Mapping[str, Adaptation]
) -> dict[str, Values]:
    """What is measured once for each stream, `[R, G, S]` each; parts of tasks solved once for each task, `[R, G, 1]`.
    `references`: what other policies came to on the same tasks, by name."""
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
        if other in references:
            cells[name] = (references[other].returns.mean(2, keepdims=True) - adaptation.returns).sum(-1)
    return cells


def after_first(success: Values) -> tuple[Floats, Floats]:
    """Of each stream of `success` `[R, G, S, E]` the successes after its first, and the episodes after its first,
    `[R, G, S]` each; 0 of 0 without any."""
    later = success.cumsum(axis=-1) > success  # a success came before
    return (success * later).sum(-1, dtype=np.float64), later.sum(-1, dtype=np.float64)


def running_mean(values: Values) -> Floats:
    """Of each episode and those after it, `SMOOTHED` in all: `[..., E]` to `[..., E - SMOOTHED + 1]`."""
    windows = np.lib.stride_tricks.sliding_window_view(values, min(SMOOTHED, values.shape[-1]), axis=-1)
    return windows.mean(-1)
