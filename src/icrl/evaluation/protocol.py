"""Evaluation protocol: numbers with intervals from the episodes of one run or of several.

R runs that differ in their seed, G tasks, S streams per task, E episodes, B resamples. Arrays are `[R, G, S, ...]`;
each number is the mean over the first three axes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Annotated, Any, Literal, NamedTuple, Self

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from pydantic import Field, model_validator

from icrl.config.options import Options, option, refuse
from icrl.evaluation import measures
from icrl.evaluation.in_context import Adaptation
from icrl.evaluation.measures import MEASURES, NEAR, PARTS, ROUNDING, SHARES, SMOOTHED, SOLVED, Exact, shown_part
from icrl.rl import statistics
from icrl.rl.statistics import Floats, Values

LEAST_TEMPERATURE = 0.001  # a colder one overflows, and is greedy


class EvaluationConfig(Options):
    checkpoint: Literal["best", "last"] = option("last", "checkpoint of stage two to roll out")
    tasks: Literal["test", "development"] = option(
        "test",
        "test: the held-out tasks, with development tasks beside them; development: the development tasks "
        "alone, to choose a recipe",
    )
    num_episodes: int = option(40, "episodes per stream", ge=2, le=10**6)
    num_streams: int = option(20, "streams per held-out task, or development task in its place", ge=1, le=10**5)
    num_train_tasks: int = option(0, "training tasks of the model that are also played, for comparison (0: all)", ge=0)
    num_train_streams: int = option(
        4, "streams per such training task, and per development task beside the held-out ones", ge=1, le=10**5
    )
    sample_probability: float = option(
        1.0, "probability of drawing an action at policy.temperature, else the most probable one", ge=0, le=1
    )
    temperatures: list[Annotated[float, Field(ge=0)]] = option(
        [0.0, 0.5], "further temperatures for the held-out tasks, for comparison (0: the most probable action)"
    )
    ablations: bool = option(
        True, "also play the held-out tasks with ablated contexts: blanked, shuffled, wiped, another task's"
    )
    num_probe_streams: int = option(
        4, "streams per held-out task for each of these temperatures and contexts", ge=1, le=10**5
    )
    num_bootstrap: int = option(2000, "bootstrap resamples of the intervals", ge=100, le=10**5)
    confidence: float = option(0.95, "coverage of the intervals", ge=0.5, le=0.999)
    videos: bool = option(True, "write the videos of the model beside the source agent", may_change=True)

    @model_validator(mode="after")
    def _check(self) -> Self:
        temperatures = self.temperatures
        refuse(
            any(0 < temperature < LEAST_TEMPERATURE for temperature in temperatures),
            f"evaluation.temperatures={temperatures}: must be 0 or at least {LEAST_TEMPERATURE}",
        )
        refuse(
            len(set(temperatures)) < len(temperatures),
            f"evaluation.temperatures={temperatures}: must have no number twice",
        )
        return self


ABLATIONS = {
    "blank": "model, rewards blanked",
    "shuffled": "model, context shuffled",
    "other_task": "model, another task's context",
    "wiped": "model, context wiped at reset",
}
TEMPERATURE = "temperature "  # prefix of the names of other decodings
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
    "fraction_solved, fraction_solved_90": "share of tasks with a success rate of at least "
    f"{' or '.join(map(str, SOLVED.values()))} over the last quarter of the episodes of all streams",
    "success_after_first": "success rate after the first success of a stream; missing if no stream has one",
    "area": "(return - random) / (optimum - random), mean over all episodes; only tasks whose optimum is above random",
    "episodes_to_90": f"`episode`: the first from which {SMOOTHED} episodes return on average at least {NEAR} of the "
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
    found: dict[str, Any] = {}
    shown = shown_part(names)
    for name, adaptation in played.items():
        label = label_of(name)
        part = "train" if "training tasks" in label else name if name in PARTS else shown
        exact, others = setting.references[part], played if part == shown else {}
        curves = measures.curve_cells(adaptation, exact, setting.regrets)
        final = measures.final_cells(curves, adaptation, exact, others)
        found[name] = {"label": label, **_intervals(curves, final, exact, config, seed)}
        above, below = measures.after_first(adaptation.success)
        if below.any():
            ratios = statistics.bootstrap_ratios(above, below, config.num_bootstrap, seed).clip(0, 1)
            low, high = map(float, statistics.percentile_interval(ratios, config.confidence))
            mean = float(above.sum() / below.sum())
            found[name]["final"]["success_after_first"] = {"mean": mean, "low": low, "high": high}
    num_episodes = played[shown].returns.shape[-1]
    decodings = {setting.decoding: shown} | {
        name.removeprefix(TEMPERATURE): name for name in names if name.startswith(TEMPERATURE)
    }
    probes = {*ABLATIONS, *decodings.values()} - {shown}
    curves = {found[name]["label"]: found[name]["curves"] for name in names if name not in probes}
    for name, exact in setting.references[shown].items():  # the same in each episode, apart from regret
        success, returns, steps = (np.tile(np.array(exact[key])[None, :, None, None], num_episodes) for key in MEASURES)
        constant = Adaptation(returns, success, steps, steps)
        cells = measures.curve_cells(constant, setting.references[shown], setting.regrets)
        curves[name] = {key: _interval(values, values.mean((0, 1, 2))[None], 0.5) for key, values in cells.items()}
    return {
        "protocol": {
            "seeds": list(runs),
            "num_tasks": {name: played[name].returns.shape[1] for name in names},
            "num_streams": {name: played[name].returns.shape[2] for name in names},
            "num_episodes": num_episodes,
            "decoding": setting.decoding,
            "num_bootstrap": config.num_bootstrap,
            "confidence": config.confidence,
            "definitions": DEFINITIONS,
        },
        "curves": curves,
        "final": {name: found[name]["final"] for name in PARTS if name in found},
        "decodings": {key: found[name] for key, name in decodings.items()},
        "ablations": {name: found[name] for name in ABLATIONS if name in found},
    }


def coverage_numbers(
    runs: Sequence[Mapping[str, Floats]], config: EvaluationConfig, seed: int
) -> dict[str, dict[str, Any]]:
    """The section `coverage` of `results.json`, given the coverage `[1, S, E]` by policy of each run; empty if a run
    has none."""
    if not all(runs):
        return {}
    cells: dict[str, Values] = {name: np.stack([run[name] for run in runs]) for name in runs[0]}
    means = _resampled(cells, config, seed)
    return {"coverage": {name: _interval(cells[name], means[name].clip(0, 1), config.confidence) for name in cells}}


def _intervals(
    curves: Mapping[str, Values], final: Mapping[str, Values], exact: Exact, config: EvaluationConfig, seed: int
) -> dict[str, Any]:
    """`curves` and `final` as `results.json` has them: means with intervals, and means per task."""
    cells = {("curves", name): values for name, values in curves.items()}
    cells |= {("final", name): values for name, values in final.items()}
    optimum = np.array(exact["optimum"]["returns"]) if exact else np.zeros(1)
    if near := optimum.mean() > 0:
        margins = curves["returns"] - NEAR * optimum[:, None, None]
        windows = sliding_window_view(margins, min(SMOOTHED, margins.shape[-1]), axis=-1)
        cells["final", "episodes_to_90"] = windows.mean(-1)
    means = _resampled(cells, config, seed)
    written: dict[str, Any] = {"curves": {}, "final": {}}
    for (section, name), values in cells.items():
        if name != "episodes_to_90":
            resampled = means[section, name].clip(0, 1) if name in SHARES else means[section, name]
            written[section][name] = _interval(values, resampled, config.confidence)
    for name in (*MEASURES, *({"regret"} & final.keys())):
        written["final"][f"{name}_per_task"] = final[name].mean((0, 2)).tolist()
    if near:
        margin, resampled = cells["final", "episodes_to_90"].mean((0, 1, 2)), means["final", "episodes_to_90"]
        written["final"]["episodes_to_90"] = _first_reached(margin, resampled, config.confidence)
    return written


def _interval(values: Values, means: Values, confidence: float) -> dict[str, Any]:
    """Mean and interquartile mean of `values`, and the interval of the resampled `means`."""
    low, high = statistics.percentile_interval(means, confidence)
    found = {
        "mean": values.mean((0, 1, 2)),
        "low": low,
        "high": high,
        "interquartile_mean": statistics.interquartile_mean(values),
    }
    return {name: value.tolist() for name, value in found.items()}


def _resampled(cells: Mapping[Any, Values], config: EvaluationConfig, seed: int) -> dict[Any, Floats]:
    """Means over resamples `[B, ...]` of each of `cells` `[R, G, S, ...]`. Cells with equal R, G and S share their
    resamples, because drawing these takes the time."""
    means: dict[Any, Floats] = {}
    by_shape = sorted(cells, key=lambda name: cells[name].shape[:3])
    for shape, group in groupby(by_shape, key=lambda name: cells[name].shape[:3]):
        names = list(group)
        flat = [cells[name].reshape(*shape, -1).astype(np.float64) for name in names]
        together = statistics.bootstrap_means(np.concatenate(flat, axis=-1), config.num_bootstrap, seed)
        ends = np.cumsum([values.shape[-1] for values in flat])[:-1]
        for name, part in zip(names, np.split(together, ends, axis=-1), strict=True):
            means[name] = part.reshape(-1, *cells[name].shape[3:])
    return means


def _first_reached(margin: Floats, means: Floats, confidence: float) -> dict[str, Any]:
    """Number of the first episode whose `margin` `[E]` is not negative, with an interval over resamples `[B, E]`."""
    reached = np.concatenate([margin[None], means]) >= -ROUNDING  # [1 + B, E]
    first = np.where(reached.any(axis=1), 1.0 + reached.argmax(axis=1), np.nan)
    found = first[1:][~np.isnan(first[1:])]
    low, high = (
        (float(end) for end in statistics.percentile_interval(found, confidence)) if len(found) else (None, None)
    )
    episode = None if np.isnan(first[0]) else int(first[0])
    return {"episode": episode, "low": low, "high": high, "share_reached": len(found) / len(means)}
