"""Stages on a union of shards, in memory or on disk: the same as on one store."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from harness import TINY, done, run
from shards import union_of
from small_histories import write_histories

from icrl.config.compose import load_config
from icrl.data.formats import read_lives
from icrl.data.history_store import open_histories
from icrl.programs import export_histories
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


@pytest.mark.parametrize("form", ["npz", "hdf5"])
def test_large_unions_are_exported_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    if form == "hdf5":
        pytest.importorskip("h5py")
    config: Any = load_config([*TINY, f"root={tmp_path}", "histories=united", f"format={form}"])
    store = open_histories(write_histories(tmp_path, "tiny", config, [3, 0, 4, 1, 2], 2, torch.rand(8, 10) < 0.3))
    union_of(store, tmp_path / "histories/united", [3, 2])
    monkeypatch.setattr(export_histories, "_LARGEST", 3 * sum(column[0].nbytes for column in store.columns.values()))
    (folder,) = export_histories.main(config)
    names = [f"histories-{part:04d}-of-0004.{form}" for part in range(4)]
    assert sorted(path.name for path in folder.glob("histories*")) == names
    lives = read_lives(form, folder, {})
    assert [life.task for life in lives] == store.row_tasks.tolist()
    assert all(np.array_equal(life.columns["obs"], obs) for life, obs in zip(lives, store.columns["obs"], strict=True))
