"""Parameters in double precision, from training to evaluation."""

from pathlib import Path
from typing import Any

import pytest
import torch
from harness import run

from icrl.nn.gpt import GPT
from icrl.runs import checkpoint

DOUBLE = ("device.dtype=float64", "device.amp_dtype=none")


def test_double_precision_is_that_of_all_that_is_learned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[torch.dtype] = set()
    forward = GPT.forward

    def noting(self: GPT, *arguments: Any) -> torch.Tensor:
        logits = forward(self, *arguments)
        seen.add(logits.dtype)
        return logits

    monkeypatch.setattr(GPT, "forward", noting)
    for stage in ("train_agents", "train_gpt", "evaluate"):
        assert run(stage, tmp_path, *DOUBLE).code == 0
    assert seen == {torch.float64}
    found = checkpoint.load_newest(tmp_path / "logs" / "tiny" / "gpt", "last", torch.device("cpu"))
    assert found
    state = found[0]
    assert {value.dtype for value in state["model"].values() if value.is_floating_point()} == {torch.float64}
    assert "device.dtype=float64" in run("evaluate", tmp_path, "device.amp_dtype=none").refusal
