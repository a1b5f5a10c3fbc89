"""Numbers of a tiny run of every training program, recorded once; they hold on any machine within tolerances.

If a change is meant to change them, `python tests/stages/test_golden.py ROOT` prints those of the run under
ROOT for `golden.json`.
"""

import json
import sys
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
from torch import Tensor

from icrl.data.history_store import open_histories
from icrl.runs import checkpoint
from icrl.runs.files import read_json

GOLDEN = Path(__file__).with_name("golden.json")
CPU = torch.device("cpu")


def tensors(state: Any) -> list[Tensor]:
    """All floating-point tensors of a nested state."""
    if isinstance(state, Tensor):
        return [state] if state.is_floating_point() else []
    parts = state.values() if isinstance(state, dict) else state if isinstance(state, (list, tuple)) else []
    return [tensor for part in parts for tensor in tensors(part)]


def numbers_in(root: Path) -> dict[str, float]:
    """Means of the history columns, norms of trained parameters, and results of the run `tiny` under `root`."""
    columns = open_histories(root / "histories/tiny").columns
    found = {f"histories.{name}": float(column.mean()) for name, column in columns.items()}
    for program, part in (("source", "learner"), ("gpt", "model")):
        loaded = checkpoint.load_newest(root / "logs/tiny" / program, "last", CPU)
        assert loaded, program
        norms = [float(tensor.double().norm()) for tensor in tensors(loaded[0][part])]
        found |= {f"{program}.norm": sum(norms), f"{program}.largest": max(norms)}
    curves = read_json(root / "logs/tiny/evaluation/results.json")["curves"]  # success is 0 after so few updates
    return found | {
        f"evaluation.steps of {name}": fmean(curve["steps_to_goal"]["mean"]) for name, curve in curves.items()
    }


def test_a_tiny_run_has_the_recorded_numbers(root: Path) -> None:
    found, recorded = numbers_in(root), json.loads(GOLDEN.read_text())
    assert found.keys() == recorded.keys()
    for name, value in recorded.items():
        # Rounding differs between CPUs; a rare action may differ then, and with it the results that follow.
        tolerance = {"evaluation": 0.25, "histories": 0.1}.get(name.partition(".")[0], 0.01 * abs(value))
        assert found[name] == pytest.approx(value, abs=tolerance), name


if __name__ == "__main__":
    print(json.dumps(numbers_in(Path(sys.argv[1])), indent=1))  # noqa: T201
