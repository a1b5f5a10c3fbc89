"""Stages on histories that stay on disk: the same as on those in memory."""

from pathlib import Path
from typing import Any

import pytest
import torch
from harness import done

from icrl.contracts import Batch
from icrl.runs import checkpoint
from icrl.training.program import ahead


def model_of(root: Path, name: str) -> dict[str, torch.Tensor]:
    found = checkpoint.load_newest(root / "logs" / name / "gpt", "last", torch.device("cpu"))
    assert found is not None
    return found[0]["model"]


def test_a_model_of_histories_on_disk_is_the_one_of_those_in_memory(root: Path, monkeypatch) -> None:
    """Bit for bit."""
    monkeypatch.setattr("icrl.data.windows.is_too_large", lambda *_: True)
    done("train_gpt", root, "name=other", "histories=tiny")
    one, two = model_of(root, "other"), model_of(root, "tiny")
    assert one.keys() == two.keys() and all(torch.equal(one[name], two[name]) for name in one)


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
