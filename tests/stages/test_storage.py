"""Stages on histories that stay on disk: the same as on those in memory."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from harness import TINY, done
from small_histories import write_histories

from icrl.config.compose import load_config
from icrl.contracts import Batch
from icrl.data.formats import read_lives
from icrl.data.history_store import open_histories
from icrl.programs import export_histories
from icrl.runs import checkpoint
from icrl.training.program import ahead


def model_of(root: Path, name: str) -> dict[str, torch.Tensor]:
    found = checkpoint.load_newest(root / "logs" / name / "gpt", "last", torch.device("cpu"))
    assert found is not None
    return found[0]["model"]


def test_a_model_of_histories_on_disk_is_the_one_of_those_in_memory(root: Path) -> None:
    """Bit for bit."""
    done("train_gpt", root, "name=other", "histories=tiny", "data.storage=disk")
    one, two = model_of(root, "other"), model_of(root, "tiny")
    assert one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize("form", ["npz", "hdf5"])
def test_large_stores_are_exported_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    if form == "hdf5":
        pytest.importorskip("h5py")
    config: Any = load_config([*TINY, f"root={tmp_path}", "histories=tiny", f"format={form}"])
    store = open_histories(write_histories(tmp_path, "tiny", config, [3, 0, 4, 1, 2], 2, torch.rand(8, 10) < 0.3))
    monkeypatch.setattr(export_histories, "_LARGEST", 3 * sum(column[0].nbytes for column in store.columns.values()))
    (folder,) = export_histories.main(config)
    names = [f"histories-{part:04d}-of-0004.{form}" for part in range(4)]
    assert sorted(path.name for path in folder.glob("histories*")) == names
    lives = read_lives(form, folder, {})
    assert [life.task for life in lives] == store.row_tasks.tolist()
    assert all(np.array_equal(life.columns["obs"], obs) for life, obs in zip(lives, store.columns["obs"], strict=True))


def test_the_next_batch_is_made_beforehand() -> None:
    made = list[int]()

    def batch_at(update: int) -> Any:
        made.append(update)
        return Batch(*[torch.tensor(1 / (update - 7))] * 10)

    ready = ahead(batch_at)
    found = [float(ready(update).obs) for update in (3, 4, 5)]
    ready(6)
    assert found == pytest.approx([1 / -4, 1 / -3, 1 / -2]) and made[:4] == [3, 4, 5, 6]
    with pytest.raises(ZeroDivisionError):
        ready(7)
