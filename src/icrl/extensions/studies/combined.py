"""Several evaluations combined into one, over seeds or over splits of the tasks."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from icrl.contracts import Json, PipelineError
from icrl.evaluation.in_context import Adaptation, EvaluationConfig
from icrl.evaluation.protocol import PARTS, Setting, shown_part, summarise
from icrl.evaluation.report import load_episodes, read_results
from icrl.rl.statistics import Floats


def combined(folders: Sequence[Path], config: EvaluationConfig, seed: int) -> Json:
    """Results over several runs, from the evaluations in `folders`.

    Runs on several splits of the tasks (`tasks.seed`) have their own tasks each. Raises `PipelineError` if a folder has
    no complete results, if its world, decoding or policies differ from those of the first, or its tasks from those of
    the first on its split."""
    evaluations: list[tuple[Json, Json]] = []
    tasks: dict[int, dict[str, Any]] = {}  # by split
    runs: dict[tuple[int, int], dict[str, Adaptation]] = {}
    measured: list[dict[str, dict[str, Floats]]] = []
    for folder in folders:
        results, _ = read_results(folder)
        episodes, further = load_episodes(folder, results["episodes"])
        split = _split_of(results)
        own = {part: results.get(f"{part}_tasks") for part in PARTS}
        same = tasks.setdefault(split, own)
        world = {key: value for key, value in results["config"]["env"].items() if key != "timeout"}
        shared: dict[str, Any] = {"worlds": world, "decodings": results["protocol"]["decoding"]}
        shared["policies, streams or episodes"] = {name: played.returns.shape for name, played in episodes.items()}
        evaluations.append((results, shared))
        differ = [PARTS[part].removeprefix("model, ") for part, value in own.items() if value != same[part]]
        if differ := [*differ, *(key for key, value in shared.items() if value != evaluations[0][1][key])]:
            raise PipelineError(f"{folders[0]} and {folder} cannot be combined: their {' and '.join(differ)} differ")
        runs[split, results["config"]["seed"]] = episodes
        measured.append(further)
    if len(runs) < len(folders):
        raise PipelineError(f"{' and '.join(map(str, folders))} cannot be combined: some have the same seed")
    first, _ = evaluations[0]
    splits = {split for split, _ in runs}
    apart = [results["references"] for results, _ in evaluations] if len(splits) > 1 else []
    regrets = "regret" in first["final"][shown_part(first["final"])]
    about = first["protocol"]
    bounds = about.get("possible", {}), about.get("optimum_is_bound", False)  # earlier versions had none
    of_runs = [split for split, _ in runs] if apart else []
    num_different = {part: len({str(task) for own in tasks.values() for task in own[part] or ()}) for part in PARTS}
    setting = Setting(first["references"], about["decoding"], regrets, *bounds, apart, of_runs, num_different)
    if apart:
        kept = {"splits": sorted(splits)}
        by_run = {f"split {split}, seed {seed}": episodes for (split, seed), episodes in runs.items()}
    else:
        kept = {key: first[key] for key in (*(f"{part}_tasks" for part in PARTS), "references") if key in first}
        by_run = {seed: episodes for (_, seed), episodes in runs.items()}
    return kept | summarise(by_run, setting, config, seed, measured)


def _split_of(results: Json) -> int:
    return results["config"].get("tasks", {}).get("seed", 0)
