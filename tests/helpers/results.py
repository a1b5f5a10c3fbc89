"""Results of evaluations that were not played."""

import json
from pathlib import Path
from typing import Any

from icrl.contracts import Json
from icrl.runs.files import Identity, write_owned

OWNER = Identity("evaluate", "f00d")
CURVE = {"mean": [0.5], "low": [0.25], "high": [0.75]}
CURVES = {measure: CURVE for measure in ("success", "returns", "steps_to_goal")}


def write_results(folder: Path, config: Json = None, checkpoint: str = "abc", **changes: Any) -> None:
    """Write a complete `results.json` of a run with this `config` and model."""
    results = {
        "config": config or {"seed": 0, "env": {}},
        "checkpoint": checkpoint,
        "episodes": "def",
        "held_out_tasks": [[1]],
        "references": {},
        "protocol": {"num_tasks": {"held_out": 1}, "decoding": "1", "confidence": 0.95},
        "curves": {"model, held-out tasks": CURVES},
        "final": {"held_out": {"fraction_solved": {"mean": 0.5}}},
        "decodings": {},
        "ablations": {},
    }
    write_owned(folder / "results.json", OWNER, 6, json.loads(json.dumps(results | changes)))
