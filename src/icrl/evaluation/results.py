"""Results of evaluations on disk: `results.json`, `episodes.npz`, and several runs combined into one result."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from icrl.contracts import Json, PipelineError
from icrl.evaluation.in_context import Adaptation
from icrl.evaluation.measures import MEASURES, PARTS, shown_part
from icrl.evaluation.protocol import Setting, coverage_numbers, numbers_of
from icrl.rl.statistics import Floats
from icrl.runs.files import Identity, check_owner, fits, read_owned, sha256, write_atomically

if TYPE_CHECKING:
    from icrl.evaluation.protocol import EvaluationConfig

RESULTS, EPISODES = "results.json", "episodes.npz"
_OWNER, _COVERAGE = "owner", "coverage/"  # array with program and run; prefix of arrays of coverage
_TYPES = tuple(map(np.dtype, ("u1", "i1", "u2", "i2", "f2", "f4", "f8")))  # the first exact one is taken
_CURVE = {"mean": [float], "low": [float], "high": [float]}
_CURVES = dict.fromkeys(MEASURES, _CURVE)
_PROBES = {str: {"label": str, "curves": _CURVES}}
_FORM = {
    "config": {"seed": int, "env": dict},
    "checkpoint": str,
    "episodes": str,
    "references": {str: {str: {str: [float]}}},
    "protocol": {"num_tasks": {str: int}, "decoding": str, "confidence": float},
    "curves": {str: _CURVES},
    "final": {str: {"fraction_solved": {"mean": float}}},
    "decodings": _PROBES,
    "ablations": _PROBES,
}


def read_results(folder: Path) -> tuple[Json, Identity]:
    """The results in `folder` and the run that wrote them. Raises `PipelineError` if they are missing or damaged."""
    results, owner, _ = read_owned(folder / RESULTS, _FORM)
    part = shown_part(results["final"])
    named = (results["final"], part), (results["protocol"]["num_tasks"], part), (results["curves"], PARTS[part])
    sound = "coverage" not in results or (results["coverage"] and fits(results["coverage"], {str: _CURVE}))
    if not (sound and all(name in section for section, name in named)):
        raise PipelineError(f"{folder / RESULTS} has unexpected content: another version or program wrote it")
    return results, owner


def save_episodes(
    folder: Path, episodes: Mapping[str, Adaptation], owner: Identity, coverage: Mapping[str, Floats] | None = None
) -> str:
    """Write `episodes.npz` and return its checksum. Its arrays are `<policy>/<field>` for each field of an adaptation,
    `coverage/<policy>`, and `owner`."""
    arrays: dict[str, Any] = {}
    for name, adaptation in episodes.items():
        for field, values in adaptation._asdict().items():
            with np.errstate(invalid="ignore", over="ignore"):  # a cast that overflows is not equal, so not taken
                smallest = next(cast for kind in _TYPES if np.array_equal(cast := values.astype(kind), values))
            arrays[f"{name}/{field}"] = smallest
    arrays |= {_COVERAGE + name: values for name, values in (coverage or {}).items()}
    content = io.BytesIO()
    np.savez_compressed(content, **arrays | {_OWNER: np.array(owner)})
    write_atomically(folder / EPISODES, content.getvalue())
    return sha256(folder / EPISODES)


def load_episodes(folder: Path, owner: Identity) -> tuple[dict[str, Adaptation], dict[str, Floats]]:
    """Episodes (in float64) and coverage, by policy, that `save_episodes` wrote for the run `owner`.

    Raises `PipelineError` if the file is missing, cut, of another run, or holds arrays of another form."""
    path = folder / EPISODES
    try:
        with np.load(path, allow_pickle=False) as found:
            arrays = {name: found[name] for name in found.files}
    except (OSError, ValueError, EOFError, KeyError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise PipelineError(f"{path} is not readable: {error}") from error
    recorded = arrays.pop(_OWNER, np.zeros(0))
    if recorded.shape != (2,) or recorded.dtype.kind != "U":
        raise PipelineError(f"{path} does not name the run that wrote it")
    check_owner(path, Identity(*recorded.tolist()), owner)
    coverage = {name: arrays.pop(name) for name in list(arrays) if name.startswith(_COVERAGE)}
    for name, values in coverage.items():
        if values.ndim != 3 or values.dtype != np.float64 or values.shape != next(iter(coverage.values())).shape:
            raise PipelineError(f"{path}: {name} must be numbers by stream and episode, not {values.shape}")
    names = dict.fromkeys(name.rpartition("/")[0] for name in arrays)
    if not arrays or arrays.keys() != {f"{name}/{field}" for name in names for field in Adaptation._fields}:
        raise PipelineError(f"{path} does not hold {', '.join(Adaptation._fields)} of each policy")
    episodes = {}
    for name in names:
        fields = [arrays[f"{name}/{field}"] for field in Adaptation._fields]
        shapes = {values.shape for values in fields}
        if len(shapes) > 1 or any(values.ndim != 3 or values.dtype not in _TYPES for values in fields):
            raise PipelineError(f"{path}: {name} must be numbers by task, stream and episode, not {sorted(shapes)}")
        episodes[name] = Adaptation(*(values.astype(np.float64) for values in fields))
    return episodes, {name.removeprefix(_COVERAGE): values for name, values in coverage.items()}


def combined(folders: Sequence[Path], config: EvaluationConfig, seed: int) -> Json:
    """Results over several runs, from the evaluations in `folders`.

    Raises `PipelineError` if a folder has no complete results, or if its tasks, world, decoding or policies differ
    from those of the first."""
    found: list[tuple[Json, Json]] = []
    runs: dict[int, dict[str, Adaptation]] = {}
    coverage: list[dict[str, Floats]] = []
    for folder in folders:
        results, owner = read_results(folder)
        episodes, covered = load_episodes(folder, owner)
        if sha256(folder / EPISODES) != results["episodes"]:
            raise PipelineError(f"{folder / EPISODES} has other episodes than the results.json beside it")
        shared = {label.removeprefix("model, "): results.get(f"{part}_tasks") for part, label in PARTS.items()}
        shared |= {"worlds": results["config"]["env"], "decodings": results["protocol"]["decoding"]}
        shared["policies, streams or episodes"] = {name: played.returns.shape for name, played in episodes.items()}
        found.append((results, shared))
        if differ := [key for key, value in shared.items() if value != found[0][1][key]]:
            raise PipelineError(f"{folders[0]} and {folder} cannot be combined: their {' and '.join(differ)} differ")
        runs[results["config"]["seed"]] = episodes
        coverage.append(covered)
    if len(runs) < len(folders):
        raise PipelineError(f"{' and '.join(map(str, folders))} cannot be combined: some have the same seed")
    first, _ = found[0]
    kept = {key: first[key] for key in (*(f"{part}_tasks" for part in PARTS), "references") if key in first}
    regrets = "regret" in first["final"][shown_part(first["final"])]
    setting = Setting(first["references"], first["protocol"]["decoding"], regrets)
    return kept | numbers_of(runs, setting, config, seed) | coverage_numbers(coverage, config, seed)
