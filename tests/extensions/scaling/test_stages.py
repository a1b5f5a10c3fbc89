"""Stages on a union of shards, in memory or on disk: the same as on one store."""

from pathlib import Path

import pytest
import torch
from harness import done, run
from shards import union_of

from icrl.data.history_store import open_histories
from icrl.runs import checkpoint
from icrl.runs.files import read_json


def model_of(root: Path, name: str) -> dict[str, torch.Tensor]:
    found = checkpoint.load_newest(root / "logs" / name / "gpt", "last", torch.device("cpu"))
    assert found is not None
    return found[0]["model"]


@pytest.mark.parametrize("storage", ["disk", "memory"])
def test_a_model_of_a_union_is_the_one_of_the_whole_store(root: Path, storage: str) -> None:
    """Bit for bit, with the same evaluation."""
    union_of(open_histories(root / "histories/tiny"), root / "histories/united", [2, 1, 2])
    options = ("name=other", "histories=united", f"data.storage={storage}")
    done("train_gpt", root, *options)
    one, two = model_of(root, "other"), model_of(root, "tiny")
    assert one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)
    done("evaluate", root, *options)
    final = [read_json(root / "logs" / name / "evaluation/results.json")["final"] for name in ("other", "tiny")]
    assert final[0] == final[1]
    assert run("train_gpt", root, "name=other", "histories=tiny").code == 2  # other files, though with the same steps
