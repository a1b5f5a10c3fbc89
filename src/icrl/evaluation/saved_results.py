"""`results.json` of an evaluation: what must be in it to be shown, or put together with others."""

from pathlib import Path

from icrl.contracts import Json, PipelineError
from icrl.evaluation.measures import PARTS, shown_part
from icrl.runs.files import fits
from icrl.runs.identity import Identity, read_owned

FILE = "results.json"
_CURVE = {"mean": [float], "low": [float], "high": [float]}
_CURVES = dict.fromkeys(("success", "returns", "steps_to_goal"), _CURVE)
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
    """The results in `folder`, and of which run they are. Raises `PipelineError` where there are none."""
    path = folder / FILE
    results, owner, _ = read_owned(path, _FORM)
    part = shown_part(results["final"])
    named = (results["final"], part), (results["protocol"]["num_tasks"], part), (results["curves"], PARTS[part])
    sound = "coverage" not in results or (results["coverage"] and fits(results["coverage"], {str: _CURVE}))
    if not (sound and all(name in section for section, name in named)):
        raise PipelineError(f"{path} does not hold what belongs there: another version or program wrote it")
    return results, owner
