"""Results of evaluations: `results.json` and `episodes.npz`."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from icrl.contracts import Json, PipelineError
from icrl.evaluation.diagnostics import diagnostics
from icrl.evaluation.in_context import Adaptation
from icrl.evaluation.measures import MEASURES
from icrl.evaluation.protocol import PARTS, shown_part
from icrl.rl.statistics import Floats
from icrl.runs.files import Identity, has_form, read_owned, sha256, write_atomically

Curves = Mapping[str, Mapping[str, list[float]]]

RESULTS, EPISODES = "results.json", "episodes.npz"
_OWNER = "owner"  # array with program and run
_TYPES = ("u1", "i1", "u2", "i2", "f2", "f4", "f8")  # the first exact one is taken
CURVE = {"mean": [float], "low": [float], "high": [float]}
PROBES = {str: {"label": str, "curves": dict.fromkeys(MEASURES, CURVE)}}
_FORM = {
    "config": {"seed": int, "env": dict},
    "checkpoint": str,
    "episodes": str,
    "references": {str: {str: {str: [float]}}},
    "protocol": {"num_tasks": {str: int}, "decoding": str, "confidence": float},
    "curves": {str: dict.fromkeys(MEASURES, CURVE)},
    "final": {str: {"fraction_solved": {"mean": float}}},
    "decodings": PROBES,
    "ablations": PROBES,
}


def read_results(folder: Path) -> tuple[Json, Identity]:
    """The results in `folder` and the run that wrote them. Raises `PipelineError` if they are missing or damaged."""
    results, owner, _ = read_owned(folder / RESULTS, _FORM)
    part = shown_part(results["final"])
    named = (results["final"], part), (results["protocol"]["num_tasks"], part), (results["curves"], PARTS[part])
    optional: dict[str, Any] = {section: form for one in diagnostics() for section, form in one.forms.items()}
    given = [(results[section], form) for section, form in optional.items() if section in results]
    sound = all(content and has_form(content, form) for content, form in given)
    if not (sound and all(name in section for section, name in named)):
        raise PipelineError(f"{folder / RESULTS} has unexpected content: another version or program wrote it")
    return results, owner


def save_episodes(
    folder: Path,
    episodes: Mapping[str, Adaptation],
    owner: Identity,
    further: Mapping[str, Mapping[str, Floats]] | None = None,
) -> str:
    """Write `episodes.npz` and return its checksum. Its arrays are `<policy>/<field>` for each field of an adaptation,
    `<kind>/<policy>` for each kind of `further` arrays, and `owner`."""
    arrays: dict[str, Any] = {}
    for name, adaptation in episodes.items():
        for field, values in adaptation._asdict().items():
            arrays[f"{name}/{field}"] = _smallest(values)
    for kind, by_policy in (further or {}).items():
        arrays |= {f"{kind}/{name}": _smallest(values) for name, values in by_policy.items()}
    content = io.BytesIO()
    np.savez_compressed(content, **arrays | {_OWNER: np.array(owner)})
    write_atomically(folder / EPISODES, content.getvalue())
    return sha256(folder / EPISODES)


def _smallest(values: Floats) -> Any:
    """`values` in the smallest type that is exact."""
    with np.errstate(invalid="ignore", over="ignore"):  # a cast that overflows is not equal, so not taken
        return next(cast for kind in _TYPES if np.array_equal(cast := values.astype(kind), values))


def source_label(name: str) -> str:
    """Name of a source in tables and plots: those of three letters are abbreviations (A2C), the others words."""
    if name == "q_learning":
        return "Q-learning"
    return name.upper() if len(name) == 3 else name.replace("_", " ")


def probes_of(results: Json) -> dict[str, Curves]:
    """Curves of other decodings and of ablations, by label."""
    probes = [*results["decodings"].values(), *results["ablations"].values()]
    return {probe["label"]: probe["curves"] for probe in probes if probe["label"] not in results["curves"]}


def all_curves(results: Json) -> dict[str, Curves]:
    """All curves by label: the model, its probes, then the references."""
    curves = results["curves"]
    ours = {label: curves[label] for label in PARTS.values() if label in curves}
    return ours | probes_of(results) | curves
