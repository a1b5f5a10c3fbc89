"""Moments of what a model reads."""

import pytest
import torch

from icrl.data.windows import mean_and_std


def test_numbers_far_from_zero_lose_no_digits() -> None:
    column = 1e6 + torch.randn(1000, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    mean, std = mean_and_std(lambda: [column])
    assert std.item() == pytest.approx(column.std(correction=0).item(), rel=1e-4)
    assert mean.item() == pytest.approx(1e6)
