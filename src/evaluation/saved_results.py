"""`results.json` of an evaluation: what must be in it to be shown, or put together with others."""

from pathlib import Path

from src.contracts import Json
from src.identity import Identity, read_owned

FILE = "results.json"
_CURVES = {key: {"mean": [float], "low": [float], "high": [float]} for key in ("success", "returns", "steps_to_goal")}
_PROBES = {str: {"label": str, "curves": _CURVES}}
_FORM = {
    "config": {"seed": int, "env": dict},
    "checkpoint": str,
    "episodes": str,
    "held_out_tasks": [[int]],
    "references": {str: {str: {str: [float]}}},
    "protocol": {"num_tasks": {"held_out": int}, "decoding": str, "confidence": float},
    "curves": {str: _CURVES, "model, held-out tasks": _CURVES},
    "final": {"held_out": {"fraction_solved": {"mean": float}}},
    "decodings": _PROBES,
    "ablations": _PROBES,
}


def read_results(folder: Path) -> tuple[Json, Identity]:
    """The results in `folder`, and of which run they are. Raises `PipelineError` where there are none."""
    results, owner, _ = read_owned(folder / FILE, _FORM)
    return results, owner
