"""Batches are made beforehand."""

from typing import Any

import pytest
import torch

from icrl.contracts import Batch
from icrl.training.program import ahead


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
