"""Several evaluations combined into one, over seeds or over splits of the tasks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from icrl.app.root import Config
from icrl.config.options import group_class, without_former
from icrl.contracts import Json, PipelineError
from icrl.evaluation.in_context import Adaptation, EvaluationConfig
from icrl.evaluation.measures import MEASURES, Cells, Exact, cells_of
from icrl.evaluation.protocol import PARTS, Setting, shown_part, summarise
from icrl.evaluation.report import EPISODES, read_results
from icrl.rl.statistics import Floats
from icrl.runs.files import sha256

_OUTSIDE = ("timeout", "num_workers")  # options of worlds that change no result


@dataclass(frozen=True)
class SettingOfSplits(Setting):
    """Setting of runs with different tasks: each run is measured against the references of its own."""

    apart: Sequence[Mapping[str, Exact]] = ()  # references of each run

    def exact(self, part: str, policy: str) -> dict[str, Floats]:
        return {key: np.array([references[part][policy][key] for references in self.apart]) for key in MEASURES}

    def cells(self, played: Adaptation, part: str) -> Cells:
        """As in a `Setting`; what one of the runs lacks is left out."""
        each: list[Cells] = []
        for run, references in enumerate(self.apart):
            own = Adaptation(*(column[run : run + 1] for column in played))
            each.append(cells_of(own, references[part], self.regrets))
        joined: Cells = {}
        for key in (key for key in each[0] if all(key in cells for cells in each)):
            of_runs = [np.asarray(cells[key], np.float64) for cells in each]
            if len({cell.shape for cell in of_runs}) > 1:  # of some tasks alone, whose number differs
                of_runs = [cell.mean((1, 2), keepdims=True) for cell in of_runs]
            joined[key] = np.concatenate(of_runs)
        return joined


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
        split = results["config"].get("tasks", {}).get("seed", 0)
        own = {part: results.get(f"{part}_tasks") for part in PARTS}
        same = tasks.setdefault(split, own)
        world, decoding = _world(results["config"]["env"]), results["protocol"]["decoding"]
        shared: dict[str, Any] = {"worlds": world, "decodings": decoding}
        shared["policies, streams or episodes"] = {name: played.returns.shape for name, played in episodes.items()}
        evaluations.append((results, shared))
        differ = [PARTS[part].removeprefix("model, ") for part, value in own.items() if value != same[part]]
        if differ := [*differ, *(key for key, value in shared.items() if value != evaluations[0][1][key])]:
            raise PipelineError(f"{folders[0]} and {folder} cannot be combined: their {' and '.join(differ)} differ")
        runs[split, results["config"]["seed"]] = episodes
        measured.append(further)
    if len(runs) < len(folders):
        raise PipelineError(f"{' and '.join(map(str, folders))} cannot be combined: some have the same seed")
    order = sorted(range(len(folders)), key=[*runs].__getitem__)  # in each split by seed, as intervals over seeds need
    evaluations = [evaluations[place] for place in order]
    measured = [measured[place] for place in order]
    runs = dict(sorted(runs.items()))
    first, _ = evaluations[0]
    splits = {split for split, _ in runs}
    regrets = "regret" in first["final"][shown_part(first["final"])]
    about = first["protocol"]
    bounds = about.get("possible", {}), about.get("optimum_is_bound", False)  # earlier versions had none
    given = (first["references"], about["decoding"], regrets, *bounds)
    if len(splits) > 1:
        apart = [results["references"] for results, _ in evaluations]
        num_different = {part: len({str(task) for own in tasks.values() for task in own[part] or ()}) for part in PARTS}
        setting = SettingOfSplits(*given, [split for split, _ in runs], num_different, apart)
        kept = {"splits": sorted(splits)}
        by_run = {f"split {split}, seed {seed}": episodes for (split, seed), episodes in runs.items()}
    else:
        setting = Setting(*given)
        kept = {key: first[key] for key in (*(f"{part}_tasks" for part in PARTS), "references") if key in first}
        by_run = {seed: episodes for (_, seed), episodes in runs.items()}
    return kept | summarise(by_run, setting, config, seed, measured)


def _world(env: Json) -> Json:
    """Recorded options of a world that change results; those that are constants now have the values of these."""
    kind = group_class(Config, "env", env)
    return {key: env[key] for key in (without_former(kind, env, "env.") if kind else env) if key not in _OUTSIDE}


def load_episodes(folder: Path, checksum: str) -> tuple[dict[str, Adaptation], dict[str, dict[str, Floats]]]:
    """Episodes by policy, and further arrays by kind and policy, that `save_episodes` wrote; all in float64. Raises
    `PipelineError` unless the file has the `checksum` that `results.json` beside it names."""
    path = folder / EPISODES
    if not path.exists() or sha256(path) != checksum:
        raise PipelineError(f"{path} is missing, damaged, or not the one of the results.json beside it")
    episodes: dict[str, dict[str, Floats]] = {}
    further: dict[str, dict[str, Floats]] = {}
    with np.load(path, allow_pickle=False) as arrays:
        for name in arrays.files:
            kind, _, rest = name.partition("/")
            policy, _, field = name.rpartition("/")
            if field in Adaptation._fields:
                episodes.setdefault(policy, {})[field] = arrays[name].astype(np.float64)
            elif name != "owner":
                further.setdefault(kind, {})[rest] = arrays[name].astype(np.float64)
    if any(fields.keys() != set(Adaptation._fields) for fields in episodes.values()):
        raise PipelineError(f"{path} has other arrays than this version writes: evaluate again")
    return {name: Adaptation(**fields) for name, fields in episodes.items()}, further
