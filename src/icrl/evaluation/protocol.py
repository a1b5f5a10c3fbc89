"""Evaluation protocol: measures of the episodes of one run or of several, as numbers with intervals.

R runs that differ in their seed, G tasks, S streams per task, E episodes, B resamples. Arrays are `[R, G, S, ...]`;
each number is the mean over the first three axes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from typing import Annotated, Any, Literal, NamedTuple, Self

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from pydantic import Field, model_validator

from icrl.config.options import Options, option, refuse
from icrl.envs.exact import Expectation
from icrl.evaluation.in_context import Adaptation
from icrl.rl import statistics
from icrl.rl.statistics import Floats, Values

PARTS = {
    "held_out": "model, held-out tasks",
    "development": "model, development tasks",
    "train": "model, training tasks",
}
ABLATIONS = {
    "blank": "model, rewards blanked",
    "shuffled": "model, context shuffled",
    "other_task": "model, another task's context",
    "wiped": "model, context wiped at reset",
}
TEMPERATURE = "temperature "  # prefix of the names of other decodings
MEASURES = ("success", "returns", "steps_to_goal")
_SOLVED = {"fraction_solved": 0.5, "fraction_solved_90": 0.9}  # success rate in a task's last episodes
_REGRETS = {"regret_to_searcher": "searcher", "regret_to_covering_plan": "covering plan"}
_LEAST_TEMPERATURE = 0.001  # a colder one overflows, and is greedy
_NEAR, _SMOOTHED = 0.9, 3  # fraction of the optimum to reach, and the number of episodes averaged to tell
_ROUNDING = 1e-9
DEFINITIONS = {
    "mean": "over seeds, tasks and streams",
    "low, high": "bootstrap interval of the mean: tasks and streams are resampled; with several seeds (training runs) "
    "each resampled mean is moved by t * sqrt(variance of the seeds' means / number of seeds), t from Student's "
    "distribution (seeds - 1); with one seed it says nothing of other training runs; shares are clipped to 0 and 1",
    "interquartile_mean": "mean of the middle half of the tasks of all seeds, each the mean over its streams",
    "success": "success rate of episodes",
    "returns": "undiscounted return of an episode",
    "steps_to_goal": "env steps until the success; the length of an episode without success",
    "fraction_of_optimum": "return / the task's exact optimal return; tasks whose optimum is not above 0 are left out",
    "regret": "optimum - return, summed over the episodes so far; in final over all episodes",
    "curves": "one number per episode, by policy and measure",
    "final": "over the last quarter of the episodes, unless the measure says over all",
    "fraction_solved, fraction_solved_90": "share of tasks with a success rate of at least 0.5 or 0.9 in `final`",
    "success_after_first": "success rate after the first success of a stream; missing if no stream has one",
    "area": "(return - random) / (optimum - random), mean over all episodes; only tasks whose optimum is above random",
    "episodes_to_90": f"`episode`: the first from which {_SMOOTHED} episodes return on average at least {_NEAR} of the "
    "mean optimum (null: none); `share_reached`: share of resamples with such an episode; `low`, `high`: over these",
    "regret_to_searcher, regret_to_covering_plan": "mean return of that policy on the task - return, over all episodes",
    "references": "exact expectations of one episode of random and of optimal play, by task",
    "train": "training tasks of the model; those that were set aside are `development`",
    "decodings": "held-out (or development) tasks by sampling temperature; 0: the most probable action",
    "ablations": "the same tasks with a corrupted context",
    "blank": "every reward that the model reads is the one nearest to 0",
    "shuffled": "at the start of each episode the transitions in the context are put in random order",
    "other_task": "at the start of each episode the context is replaced by the model's own past on the next task",
    "wiped": "at the start of each episode the context is emptied",
    "coverage": "in a room without a goal: share of the possible goal cells visited by the end of each episode",
}

Exact = Mapping[str, Mapping[str, Sequence[float]]]  # by policy (random, optimum) and measure: one number per task


class EvaluationConfig(Options):
    checkpoint: Literal["best", "last"] = option("last", "checkpoint of stage two to roll out")
    tasks: Literal["test", "development"] = option(
        "test", "test: held-out tasks, and development tasks beside them; development: these alone, to choose a recipe"
    )
    num_episodes: int = option(40, "episodes per stream", ge=2, le=10**6)
    num_streams: int = option(20, "streams per held-out task, or development task in its place", ge=1, le=10**5)
    num_train_tasks: int = option(0, "training tasks of the model that are also played, for comparison (0: all)", ge=0)
    num_train_streams: int = option(4, "streams per training task, or further development task", ge=1, le=10**5)
    sample_probability: float = option(1.0, "probability of drawing at policy.temperature, else greedy", ge=0, le=1)
    temperatures: list[Annotated[float, Field(ge=0)]] = option([0.0, 0.5], "other temperatures to compare (0: greedy)")
    ablations: bool = option(True, "also play with contexts blanked, shuffled, wiped, or another task's")
    num_probe_streams: int = option(4, "streams per held-out task for each ablation or temperature", ge=1, le=10**5)
    num_bootstrap: int = option(2000, "bootstrap resamples of the intervals", ge=100, le=10**5)
    confidence: float = option(0.95, "coverage of the intervals", ge=0.5, le=0.999)
    videos: bool = option(True, "write the videos of the model beside the source agent", may_change=True)

    @model_validator(mode="after")
    def _check(self) -> Self:
        given, must = self.temperatures, f"evaluation.temperatures={self.temperatures}: must"
        low = any(0 < temperature < _LEAST_TEMPERATURE for temperature in given)
        refuse(low, f"{must} be 0 or at least {_LEAST_TEMPERATURE}")
        refuse(len(set(given)) < len(given), f"{must} have no number twice")
        return self


class Setting(NamedTuple):
    """Settings that all runs of an evaluation share."""

    references: Mapping[str, Exact]  # by part; empty without a planner
    decoding: str  # default decoding, see `decoding_name`
    regrets: bool  # whether regret is measured


def decoding_name(temperature: float, epsilon: float) -> str:
    """Name in `decodings` of a policy that samples at `temperature` with probability `epsilon`, else is greedy."""
    if epsilon in (0, 1):
        return f"{temperature * epsilon:g}"
    return f"{temperature:g}, with probability {epsilon:g}"


def label_of(name: str) -> str:
    """Label of a policy in tables and plots."""
    if name.startswith(TEMPERATURE):
        return "model, greedy" if name == f"{TEMPERATURE}0" else f"model, {name}"
    return (PARTS | ABLATIONS).get(name, name)


def shown_part(names: Collection[str]) -> str:
    """The main part of an evaluation: the held-out tasks, or the development tasks in their place."""
    return "held_out" if "held_out" in names else "development"


def tail_of(num_episodes: int) -> int:
    """Number of last episodes that make the final result: a quarter."""
    return max(1, num_episodes // 4)


def exact_numbers(expectations: Mapping[str, Expectation]) -> Exact:
    """Exact references in the form of the section `references`."""
    fields = {"success": "success", "returns": "episode_return", "steps_to_goal": "steps_to_goal"}.items()
    return {key: {name: getattr(one, field).tolist() for name, field in fields} for key, one in expectations.items()}


def numbers_of(
    runs: Mapping[int, Mapping[str, Adaptation]], setting: Setting, config: EvaluationConfig, seed: int
) -> dict[str, Any]:
    """The sections `protocol`, `curves`, `final`, `decodings` and `ablations` of `results.json`.

    `runs`: results `[G, S, E]` by seed and policy name: `PARTS`, `ABLATIONS`, names that start with `TEMPERATURE`, and
    references, whose names contain "training tasks" if they played those. `seed`: of the resamples."""
    names = list(next(iter(runs.values())))
    played = {
        name: Adaptation(*map(np.stack, zip(*(run[name] for run in runs.values()), strict=True))) for name in names
    }
    shown = shown_part(names)
    found: dict[str, Any] = {}
    for name, adaptation in played.items():
        label = label_of(name)
        part = "train" if "training tasks" in label else name if name in PARTS else shown
        cells = _cells(adaptation, setting.references[part], setting.regrets, played if part == shown else {})
        found[name] = {"label": label, **_intervals(cells, config, seed)}
        later = adaptation.success.cumsum(axis=-1) > adaptation.success  # a success of the stream came before
        above, below = ((values * later).sum(-1, dtype=np.float64) for values in (adaptation.success, 1))
        if below.any():
            ratios = statistics.bootstrap_ratios(above, below, config.num_bootstrap, seed).clip(0, 1)
            low, high = map(float, statistics.percentile_interval(ratios, config.confidence))
            mean = float(above.sum() / below.sum())
            found[name]["final"]["success_after_first"] = {"mean": mean, "low": low, "high": high}
    num_episodes = played[shown].returns.shape[-1]
    others = {name.removeprefix(TEMPERATURE): name for name in names if name.startswith(TEMPERATURE)}
    plain = [name for name in names if name not in (ABLATIONS.keys() | others.values())]
    curves = {found[name]["label"]: found[name]["curves"] for name in plain}
    for name, exact in setting.references[shown].items():  # the same in each episode, apart from regret
        success, returns, steps = (np.tile(np.array(exact[key])[None, :, None, None], num_episodes) for key in MEASURES)
        cells = _cells(Adaptation(returns, success, steps, steps), setting.references[shown], setting.regrets, {})
        of_curves = {key: values for (section, key), values in cells.items() if section == "curves"}
        curves[name] = {key: _interval(values, values.mean((0, 1, 2))[None], 0.5) for key, values in of_curves.items()}
    return {
        "protocol": {
            "seeds": list(runs),
            "num_tasks": {name: adaptation.returns.shape[1] for name, adaptation in played.items()},
            "num_streams": {name: adaptation.returns.shape[2] for name, adaptation in played.items()},
            "num_episodes": num_episodes,
            "decoding": setting.decoding,
            "num_bootstrap": config.num_bootstrap,
            "confidence": config.confidence,
            "definitions": DEFINITIONS,
        },
        "curves": curves,
        "final": {name: found[name]["final"] for name in PARTS if name in found},
        "decodings": {key: found[name] for key, name in ({setting.decoding: shown} | others).items()},
        "ablations": {name: found[name] for name in ABLATIONS if name in found},
    }


def coverage_numbers(
    runs: Sequence[Mapping[str, Floats]], config: EvaluationConfig, seed: int
) -> dict[str, dict[str, Any]]:
    """The section `coverage` of `results.json`, given the coverage `[1, S, E]` by policy of each run; empty if a run
    has none."""
    if not all(runs):
        return {}
    cells = {("coverage", name): np.stack([run[name] for run in runs]) for name in runs[0]}
    return _intervals(cells, config, seed)


def _cells(
    played: Adaptation, exact: Exact, regrets: bool, others: Mapping[str, Adaptation]
) -> dict[tuple[str, str], Values]:
    """Measures by section and name: `curves` of each episode `[R, G, S, E]`, and `final` of each stream `[R, G, S]`, of
    solved tasks `[R, G, 1]`. `others`: results of other policies on the same tasks, by name."""
    random, optimum = (np.array(exact[name]["returns"] if exact else []) for name in ("random", "optimum"))
    curves: dict[str, Values] = {measure: getattr(played, measure) for measure in MEASURES}
    if (paid := optimum > 0).any():
        curves["fraction_of_optimum"] = played.returns[:, paid] / optimum[paid, None, None]
    if regrets:
        curves["regret"] = (optimum[:, None, None] - played.returns).cumsum(axis=-1)
    tail = tail_of(played.returns.shape[-1])
    final: dict[str, Values] = {
        name: values[..., -1] if name == "regret" else values[..., -tail:].mean(-1) for name, values in curves.items()
    }
    for name, part in _SOLVED.items():
        final[name] = final["success"].mean(-1, keepdims=True) >= part - _ROUNDING
    if (room := optimum > random + _ROUNDING).any():
        share = (played.returns[:, room] - random[room, None, None]) / (optimum - random)[room, None, None]
        final["area"] = share.mean(-1)
    for name, other in _REGRETS.items():
        if other in others:
            final[name] = (others[other].returns.mean(2, keepdims=True) - played.returns).sum(-1)
    if optimum.sum() > 0:
        margins = played.returns - _NEAR * optimum[:, None, None]
        windows = sliding_window_view(margins, min(_SMOOTHED, margins.shape[-1]), axis=-1)
        final["episodes_to_90"] = windows.mean(-1)  # see `_first_reached`
    return {(key, name): cell for key, cells in (("curves", curves), ("final", final)) for name, cell in cells.items()}


def _intervals(cells: Mapping[tuple[str, str], Values], config: EvaluationConfig, seed: int) -> dict[str, Any]:
    """Cells as `results.json` has them: means with intervals, and means per task.

    Cells with equal R, G and S share their resamples, because drawing these takes the time."""
    means: dict[tuple[str, str], Floats] = {}
    by_shape = sorted(cells, key=lambda name: cells[name].shape[:3])
    for shape, group in groupby(by_shape, key=lambda name: cells[name].shape[:3]):
        names = list(group)
        flat = [cells[name].reshape(*shape, -1).astype(np.float64) for name in names]
        together = statistics.bootstrap_means(np.concatenate(flat, axis=-1), config.num_bootstrap, seed)
        ends = np.cumsum([values.shape[-1] for values in flat])[:-1]
        for name, part in zip(names, np.split(together, ends, axis=-1), strict=True):
            means[name] = part.reshape(-1, *cells[name].shape[3:])
    written: dict[str, Any] = {}
    for (section, name), values in cells.items():
        resampled, numbers = means[section, name], written.setdefault(section, {})
        if name == "episodes_to_90":
            numbers[name] = _first_reached(values.mean((0, 1, 2)), resampled, config.confidence)
            continue
        if name in ("success", *_SOLVED) or section == "coverage":  # shares
            resampled = resampled.clip(0, 1)
        numbers[name] = _interval(values, resampled, config.confidence)
        if section == "final" and name in (*MEASURES, "regret"):
            numbers[f"{name}_per_task"] = values.mean((0, 2)).tolist()
    return written


def _interval(values: Values, means: Values, confidence: float) -> dict[str, Any]:
    """Mean and interquartile mean of `values`, and the interval of the resampled `means`."""
    low, high = statistics.percentile_interval(means, confidence)
    ends = {"mean": values.mean((0, 1, 2)), "low": low, "high": high}
    numbers = ends | {"interquartile_mean": statistics.interquartile_mean(values)}
    return {name: value.tolist() for name, value in numbers.items()}


def _first_reached(margin: Floats, means: Floats, confidence: float) -> dict[str, Any]:
    """Number of the first episode whose `margin` `[E]` is not negative, with an interval over resamples `[B, E]`."""
    reached = np.concatenate([margin[None], means]) >= -_ROUNDING  # [1 + B, E]
    first = np.where(reached.any(axis=1), 1.0 + reached.argmax(axis=1), np.nan)
    found = first[1:][~np.isnan(first[1:])]
    low, high = map(float, statistics.percentile_interval(found, confidence)) if len(found) else (None, None)
    episode = None if np.isnan(first[0]) else int(first[0])
    return {"episode": episode, "low": low, "high": high, "share_reached": len(found) / len(means)}
