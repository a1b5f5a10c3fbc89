"""The evaluation protocol: what played episodes come to, in numbers with intervals, for one run or over several.

R runs that differ in their seed, G tasks, S streams per task, E episodes, B resamples. Arrays are `[R, G, S, ...]`, of
which each number is the mean over the first three axes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from icrl.contracts import Json, PipelineError
from icrl.evaluation.in_context import Adaptation
from icrl.evaluation.measures import (
    MEASURES,
    NEAR,
    PARTS,
    ROUNDING,
    SHARES,
    SMOOTHED,
    SOLVED,
    Exact,
    after_first,
    curve_cells,
    final_cells,
    running_mean,
    shown_part,
)
from icrl.evaluation.saved_episodes import FILE, load_coverage, load_episodes
from icrl.evaluation.saved_results import read_results
from icrl.rl.statistics import (
    Floats,
    Values,
    bootstrap_means,
    bootstrap_ratios,
    interquartile_mean,
    percentile_interval,
)
from icrl.runs.files import sha256

if TYPE_CHECKING:
    from icrl.config.root import EvaluationConfig

ABLATIONS = {
    "blank": "model, rewards blanked",
    "shuffled": "model, context shuffled",
    "other_task": "model, another task's context",
    "wiped": "model, context wiped at reset",
}
TEMPERATURE = "temperature "  # what names of other decodings begin with

DEFINITIONS = {
    "mean": "over seeds, tasks and streams",
    "low, high": "ends of an interval of the mean: tasks and streams of each are drawn anew (bootstrap); of several "
    "seeds (training runs) each such mean is then moved by t * sqrt(variance of the seeds' means / number of seeds), t "
    "drawn from Student's distribution with one degree of freedom less than there are seeds; of one seed the interval "
    "says nothing of other training runs; shares are clipped to 0 and 1",
    "interquartile_mean": "mean of the middle half of all tasks of all seeds, of each the mean over streams",
    "success": "share of episodes that succeed",
    "returns": "undiscounted return of an episode",
    "steps_to_goal": "env steps until the success; of episodes without one their length",
    "fraction_of_optimum": "return / the task's exact optimum; tasks whose optimum is not above 0 are left out",
    "regret": "optimum - return, summed over the episodes so far; in final over all",
    "curves": "by policy and measure, a number for each episode",
    "final": "over the last quarter of the episodes, but for what is said to be over all",
    "fraction_solved, fraction_solved_90": "tasks of which at least "
    f"{' or '.join(map(str, SOLVED.values()))} of the last quarter of the episodes succeed, over all streams; its "
    "interval is over seeds and tasks",
    "success_after_first": "of all episodes that come after the first success of their stream, the share that succeed; "
    "streams without a success have none; missing where no stream has",
    "area": "(return - random) / (optimum - random), the mean over all episodes: 0 is chance, 1 the optimum from the "
    "start; tasks whose optimum is not above chance are left out",
    "episodes_to_90": f"`episode`: the first from which {SMOOTHED} episodes return on average at least {NEAR} of the "
    "mean optimum (null: none); `share_reached`: of resamples in which there is one; `low`, `high`: over these",
    "regret_to_searcher, regret_to_covering_plan": "the mean return on the task of the policy so called - return, "
    "summed over all episodes; below 0 where the model returns more",
    "references": "exact expectations of one episode of random and of optimal play, by task",
    "train": "tasks that the model learned from; those that were set aside are `development`",
    "decodings": "held-out tasks, or in their place development tasks, at other temperatures, "
    "by temperature; 0: the most probable action",
    "ablations": "the same tasks with a context that was tampered with",
    "blank": "all rewards the model reads are the one nearest to 0",
    "shuffled": "at the start of each episode the transitions in the context are put in a random order",
    "other_task": "at the start of each episode the context becomes what the model lived through on the next task",
    "wiped": "at the start of each episode the context is emptied",
    "coverage": "in a room without a goal: the share of the cells that may be goals which a stream has visited by the "
    "end of each episode, by policy",
}


class Setting(NamedTuple):
    """What all runs have in common."""

    references: Mapping[str, Exact]  # by part; empty without a planner
    decoding: str  # how actions are drawn where nothing else is said, see `decoding_name`
    regrets: bool  # whether regret is measured


def decoding_name(temperature: float, epsilon: float) -> str:
    """How `decodings` calls a policy that draws at `temperature` with probability `epsilon`, else is greedy."""
    if epsilon in (0, 1):
        return f"{temperature * epsilon:g}"
    return f"{temperature:g}, with probability {epsilon:g}"


def numbers_of(
    runs: Mapping[int, Mapping[str, Adaptation]], setting: Setting, config: EvaluationConfig, seed: int
) -> dict[str, Any]:
    """The sections `protocol`, `curves`, `final`, `decodings` and `ablations` of `results.json`.

    `runs`: by seed, what each policy came to `[G, S, E]`, by name: those of `PARTS` and `ABLATIONS`, "temperature 0.5",
    and others that are called as they are shown; those on training tasks say so. `seed` is that of the resamples."""
    names = list(next(iter(runs.values())))
    played = {
        name: Adaptation(*map(np.stack, zip(*(run[name] for run in runs.values()), strict=True))) for name in names
    }
    found: dict[str, Any] = {}
    shown = shown_part(names)
    for name, adaptation in played.items():
        part = "train" if "training tasks" in label_of(name) else name if name in PARTS else shown
        exact, others = setting.references[part], played if part == shown else {}
        curves = curve_cells(adaptation, exact, setting.regrets)
        final = final_cells(curves, adaptation, exact, others)
        found[name] = {"label": label_of(name), **_summarized(curves, final, exact, config, seed)}
        found[name]["final"] |= _ratio("success_after_first", after_first(adaptation.success), config, seed)
    num_episodes = played[shown].returns.shape[-1]
    decodings = {setting.decoding: shown} | {
        name.removeprefix(TEMPERATURE): name for name in names if name.startswith(TEMPERATURE)
    }
    probes = {*ABLATIONS, *decodings.values()} - {shown}
    curves = {found[name]["label"]: found[name]["curves"] for name in names if name not in probes}
    for name in setting.references[shown]:
        curves[name] = _constant_curves(setting.references[shown], name, num_episodes, setting.regrets)
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
    """The section `coverage` of `results.json`; none where nothing was measured. `runs`: of each, what streams covered
    by the end of each episode, `[1, S, E]`, by policy."""
    if not all(runs):
        return {}
    cells: dict[str, Values] = {name: np.stack([run[name] for run in runs]) for name in runs[0]}
    means = _resampled(cells, config, seed)
    return {"coverage": {name: _summary(cells[name], means[name].clip(0, 1), config.confidence) for name in cells}}


def combined(folders: Sequence[Path], config: EvaluationConfig, seed: int) -> Json:
    """What `results.json` says of one run, over the runs whose evaluations are in `folders`.

    Raises `PipelineError` where a folder has no whole results, or others were played in it than in the first."""
    found = [_read(folder) for folder in folders]
    shared = [_shared(results, episodes) for results, episodes in found]
    for folder, ours in zip(folders, shared, strict=True):
        if differ := [what for what, value in ours.items() if value != shared[0][what]]:
            raise PipelineError(
                f"{folders[0]} and {folder} cannot be put together: their {' and '.join(differ)} differ"
            )
    runs = {results["config"]["seed"]: episodes for results, episodes in found}
    if len(runs) < len(folders):
        raise PipelineError(f"{' and '.join(map(str, folders))} cannot be put together: some have the same seed")
    first, _ = found[0]
    kept = {key: first[key] for key in (*(f"{part}_tasks" for part in PARTS), "references") if key in first}
    regrets = "regret" in first["final"][shown_part(first["final"])]
    setting = Setting(first["references"], first["protocol"]["decoding"], regrets)
    coverage = coverage_numbers([load_coverage(folder) for folder in folders], config, seed)
    return kept | numbers_of(runs, setting, config, seed) | coverage


def _read(folder: Path) -> tuple[Json, dict[str, Adaptation]]:
    """The results in `folder`, and the episodes they are about."""
    results, owner = read_results(folder)
    episodes = load_episodes(folder, owner)
    if sha256(folder / FILE) != results["episodes"]:
        raise PipelineError(f"{folder / FILE} does not hold the episodes that results.json beside it is about")
    return results, episodes


def _shared(results: Json, episodes: Mapping[str, Adaptation]) -> dict[str, Any]:
    """What must be alike in runs that are put together."""
    return {
        **{label.removeprefix("model, "): results.get(f"{part}_tasks") for part, label in PARTS.items()},
        "worlds": results["config"]["env"],
        "decodings": results["protocol"]["decoding"],
        "policies, streams or episodes": {name: played.returns.shape for name, played in episodes.items()},
    }


def label_of(name: str) -> str:
    """How a policy is called in tables and pictures."""
    if name.startswith(TEMPERATURE):
        return "model, greedy" if name == f"{TEMPERATURE}0" else f"model, {name}"
    return (PARTS | ABLATIONS).get(name, name)


def _summarized(
    curves: Mapping[str, Values], final: Mapping[str, Values], exact: Exact, config: EvaluationConfig, seed: int
) -> dict[str, Any]:
    """`curves` and `final` as they are written."""
    cells = {("curves", name): values for name, values in curves.items()}
    cells |= {("final", name): values for name, values in final.items()}
    optimum = np.array(exact["optimum"]["returns"]) if exact else np.zeros(1)
    if near := optimum.mean() > 0:
        cells["final", "episodes_to_90"] = running_mean(curves["returns"] - NEAR * optimum[:, None, None])
    means = _resampled(cells, config, seed)
    written: dict[str, Any] = {"curves": {}, "final": {}}
    for (section, name), values in cells.items():
        if name != "episodes_to_90":
            here = means[section, name].clip(0, 1) if name in SHARES else means[section, name]
            written[section][name] = _summary(values, here, config.confidence)
    for name in (*MEASURES, *({"regret"} & final.keys())):
        written["final"][f"{name}_per_task"] = final[name].mean((0, 2)).tolist()
    if near:
        margin = cells["final", "episodes_to_90"].mean((0, 1, 2))
        written["final"]["episodes_to_90"] = _first(margin, means["final", "episodes_to_90"], config.confidence)
    return written


def _ratio(name: str, sums: tuple[Floats, Floats], config: EvaluationConfig, seed: int) -> dict[str, Any]:
    """A share called `name`, given numerators and denominators `[R, G, S]` that are summed; none where all are 0."""
    above, below = sums
    if not below.any():
        return {}
    low, high = percentile_interval(bootstrap_ratios(*sums, config.num_bootstrap, seed).clip(0, 1), config.confidence)
    return {name: {"mean": float(above.sum() / below.sum()), "low": float(low), "high": float(high)}}


def _summary(values: Values, means: Values, confidence: float) -> dict[str, Any]:
    low, high = percentile_interval(means, confidence)
    found = {"mean": values.mean((0, 1, 2)), "low": low, "high": high, "interquartile_mean": interquartile_mean(values)}
    return {name: value.tolist() for name, value in found.items()}


def _resampled(cells: Mapping[Any, Values], config: EvaluationConfig, seed: int) -> dict[Any, Floats]:
    """Means over resamples `[B, ...]` of each of `cells` `[R, G, S, ...]`. Those of as many runs, tasks and streams
    share the resamples, as drawing these is what takes time."""
    means: dict[Any, Floats] = {}
    by_shape = sorted(cells, key=lambda name: cells[name].shape[:3])
    for shape, group in groupby(by_shape, key=lambda name: cells[name].shape[:3]):
        names = list(group)
        flat = [cells[name].reshape(*shape, -1).astype(np.float64) for name in names]
        together = bootstrap_means(np.concatenate(flat, axis=-1), config.num_bootstrap, seed)
        ends = np.cumsum([values.shape[-1] for values in flat])[:-1]
        for name, part in zip(names, np.split(together, ends, axis=-1), strict=True):
            means[name] = part.reshape(-1, *cells[name].shape[3:])
    return means


def _first(margin: Floats, means: Floats, confidence: float) -> dict[str, Any]:
    """The number of the first episode whose `margin` `[E]` is not negative, and likewise of resamples `[B, E]`."""
    reached = np.concatenate([margin[None], means]) >= -ROUNDING  # [1 + B, E]
    first = np.where(reached.any(axis=1), 1.0 + reached.argmax(axis=1), np.nan)
    found = first[1:][~np.isnan(first[1:])]
    low, high = (float(end) for end in percentile_interval(found, confidence)) if len(found) else (None, None)
    episode = None if np.isnan(first[0]) else int(first[0])
    return {"episode": episode, "low": low, "high": high, "share_reached": len(found) / len(means)}


def _constant_curves(exact: Exact, name: str, num_episodes: int, regrets: bool) -> dict[str, Any]:
    """The curves of an exact reference: the same in each episode, intervals of no width; only regret grows."""
    success, returns, steps = (
        np.tile(np.array(exact[name][measure])[None, :, None, None], num_episodes) for measure in MEASURES
    )
    cells = curve_cells(Adaptation(returns, success, steps, steps), exact, regrets)
    return {measure: _summary(values, values.mean((0, 1, 2))[None], 0.5) for measure, values in cells.items()}
