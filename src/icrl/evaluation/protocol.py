"""Evaluation protocol: measures of the episodes of one run or of several, as numbers with intervals.

R runs that differ in their seed, G tasks, S streams per task, E episodes, B resamples. Arrays are `[R, G, S, ...]`;
each number is the mean over the first three axes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from icrl.evaluation import measures
from icrl.evaluation.diagnostics import OF_DIAGNOSTIC, Arrays, Runs, diagnostics
from icrl.evaluation.in_context import Adaptation, EvaluationConfig
from icrl.rl.statistics import CONFIDENCE, Floats

PARTS = {
    "held_out": "model, held-out tasks",
    "development": "model, development tasks",
    "train": "model, training tasks",
}
BEFORE = "model before trials"  # distilled, and not fine-tuned; it plays the main part of the tasks
COMPARED = [BEFORE]  # with the model, task by task, where an extension compares; others add some
ABLATIONS = {
    "blank": "model, rewards blanked",
    "shuffled": "model, context shuffled",
    "other_task": "model, another task's context",
    "wiped": "model, context wiped at reset",
}
TEMPERATURE = "temperature "  # prefix of the names of other decodings


@dataclass(frozen=True)
class Setting:
    """Settings that all runs of an evaluation share."""

    references: Mapping[str, measures.Exact]  # by part; empty without a planner
    decoding: str  # default decoding, see `decoding_name`
    regrets: bool  # whether regret is measured
    possible: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # of an episode
    optimum_is_bound: bool = False  # whether no episode has a higher return or fewer steps than the exact optimum
    splits: Sequence[int] = ()  # of each run, if there are several
    num_different: Mapping[str, int] = field(default_factory=dict)  # tasks by part, where splits may share some

    def bounds(self, part: str) -> measures.Bounds:
        """Least and largest possible values of measures on the tasks of `part`."""
        limits: dict[str, Any] = {**measures.SHARES, **self.possible}
        if self.optimum_is_bound:
            best, random = self.exact(part, "optimum"), self.exact(part, "random")["returns"]
            (worst, _), room = limits["returns"], best["returns"] > random
            least = (worst - random[room]) / (best["returns"] - random)[room]
            limits["returns"] = worst, best["returns"]
            limits["steps_to_goal"] = best["steps_to_goal"], limits["steps_to_goal"][1]
            limits |= {"fraction_of_optimum": (0.0, 1.0), "area": (float(least.mean()) if room.any() else 0.0, 1.0)}
        return limits

    def exact(self, part: str, policy: str) -> dict[str, Floats]:
        """Exact results of a `policy` on the tasks of `part` in each run, `[R or 1, G]`, by measure."""
        return {key: np.array([self.references[part][policy][key]]) for key in measures.MEASURES}

    def cells(self, played: Adaptation, part: str) -> measures.Cells:
        """`measures.cells_of` episodes `[R, G, S, E]` on the tasks of `part`."""
        return measures.cells_of(played, self.references[part], self.regrets)


def decoding_name(temperature: float, sample_probability: float) -> str:
    """Name in `decodings` of a policy that samples at `temperature` with this probability, and else is greedy."""
    if sample_probability in (0, 1):
        return f"{temperature * sample_probability:g}"
    return f"{temperature:g}, with probability {sample_probability:g}"


def label_of(name: str) -> str:
    """Label of a policy in tables and plots."""
    if name.startswith(TEMPERATURE):
        return "model, greedy" if name == f"{TEMPERATURE}0" else f"model, {name}"
    return (PARTS | ABLATIONS).get(name, name)


class ResultSoFar:
    """Words for the progress line: success by episode of `main`, over the tasks that were played so far, or of the
    policy that was played last. Returns, as long as nothing that was played has a success."""

    def __init__(self, main: str) -> None:
        self._main, self._played = main, dict[str, list[Adaptation]]()

    def __call__(self, name: str, result: Any) -> str:
        if isinstance(result, tuple):  # and no coverage
            self._played.setdefault(name, []).append(result[0])
        shown = self._main if self._main in self._played else next(reversed(self._played), "")
        if not shown:
            return ""
        won = any(played.success.any() for parts in self._played.values() for played in parts)
        curve = np.concatenate([part.success if won else part.returns for part in self._played[shown]]).mean((0, 1))
        ends = sorted({episode for episode in (1, 5, 20) if episode < len(curve)} | {1, len(curve)})
        values = ", ".join(f"{curve[episode - 1]:.2f} in {episode}" for episode in ends)
        return f"{label_of(shown)}: {'success' if won else 'return'} {values}".replace(" in 1,", " in episode 1,")


def shown_part(names: Collection[str]) -> str:
    """The main part of an evaluation: the held-out tasks, or the development tasks in their place."""
    return "held_out" if "held_out" in names else "development"


def part_of(name: str, main: str) -> str:
    """Part of the tasks that the policy `name` played: the `main` one, unless its name says another."""
    if "training tasks" in name:
        return "train"
    return name if name in PARTS else main


def summarise(
    runs: Mapping[Any, Mapping[str, Adaptation]],
    setting: Setting,
    config: EvaluationConfig,
    seed: int,
    arrays: Sequence[Arrays] = (),
) -> dict[str, Any]:
    """The sections `protocol`, `curves`, `final`, `decodings`, `ablations` of `results.json`, and those of diagnostics.

    `runs`: results `[G, S, E]` by run (its seed, or split and seed) and policy name: `PARTS`, `ABLATIONS`, names that
    start with `TEMPERATURE`, those of diagnostics, and references, whose names contain "training tasks" if they played
    those. `seed`: of the resamples. `arrays`: those of diagnostics, of each run."""
    episodes = {
        name: Adaptation(*map(np.stack, zip(*(run[name] for run in runs.values()), strict=True)))
        for name in next(iter(runs.values()))
    }
    played = {name: adaptation for name, adaptation in episodes.items() if OF_DIAGNOSTIC not in name}
    names, measured = list(played), dict[str, Any]()
    shown = shown_part(names)
    for name, adaptation in played.items():
        part = part_of(name, shown)
        cells, is_bound = setting.cells(adaptation, part), setting.optimum_is_bound
        given = setting.splits, setting.bounds(part), setting.num_different.get(part, 0)
        numbers = measures.intervals(cells, config, seed, *given, optimum_is_bound=is_bound)
        measured[name] = {"label": label_of(name), **numbers}
    num_episodes = played[shown].returns.shape[-1]
    others = {name.removeprefix(TEMPERATURE): name for name in names if name.startswith(TEMPERATURE)}
    plain = [name for name in names if name not in (ABLATIONS.keys() | {*others.values()})]
    curves = {measured[name]["label"]: measured[name]["curves"] for name in plain}
    exact = {name: setting.exact(shown, name) for name in setting.references[shown]}
    curves |= {name: _exact_curves(setting, shown, one, num_episodes) for name, one in exact.items()}
    if measures.measure_of(curves) == "returns" and (scale := measures.scale_of(curves)):
        exact_ones = [curves[name] for name in setting.references[shown]]
        for section in (*(one[key] for one in measured.values() for key in ("curves", "final")), *exact_ones):
            section[measures.SCALED] = measures.scaled(section["returns"], scale)
    results = {
        "protocol": {
            "seeds": list(runs),
            "num_tasks": {name: adaptation.returns.shape[1] for name, adaptation in episodes.items()},
            "num_streams": {name: adaptation.returns.shape[2] for name, adaptation in episodes.items()},
            "num_episodes": num_episodes,
            "decoding": setting.decoding,
            "possible": {key: list(ends) for key, ends in setting.possible.items()},
            "optimum_is_bound": setting.optimum_is_bound,
            "num_bootstrap": config.num_bootstrap,
            "confidence": CONFIDENCE,
        },
        "curves": curves,
        "final": {name: measured[name]["final"] for name in PARTS if name in measured},
        "decodings": {key: measured[name] for key, name in ({setting.decoding: shown} | others).items()},
        "ablations": {name: measured[name] for name in ABLATIONS if name in measured},
    }
    ends, alike = setting.bounds(shown), setting.num_different
    all_runs = Runs(config, seed, setting.splits, setting.possible, episodes, arrays, exact, alike, ends)
    for diagnostic in diagnostics():
        diagnostic.add(results, all_runs)
    return results


def _exact_curves(setting: Setting, part: str, exact: Mapping[str, Floats], num_episodes: int) -> dict[str, Any]:
    """Curves of a policy with `exact` results on the tasks of `part`: the same in each episode, but for regret."""
    success, returns, steps = (np.tile(exact[key][:, :, None, None], num_episodes) for key in measures.MEASURES)
    cells = setting.cells(Adaptation(returns, success, steps, steps), part)
    of_curves = {key: values for (section, key), values in cells.items() if section == "curves"}
    return {key: measures.interval(values, values.mean((0, 1, 2))[None]) for key, values in of_curves.items()}
