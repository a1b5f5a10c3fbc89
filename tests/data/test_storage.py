"""Stores stay on disk."""

import numpy as np
import pytest
from lives import ALIKE, CONFIG, CPU
from stores import KINDS, TRAIN, assert_same_batches, mixture_of, written

from icrl.config.options import replace
from icrl.data import columns, lives
from icrl.data.history_store import Histories
from icrl.data.windows import Windows


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Histories:
    return written(tmp_path_factory.mktemp("histories") / "whole")


@pytest.mark.parametrize(("options", "objective", "plugin"), KINDS)
def test_rows_are_prepared_a_few_at_a_time(store: Histories, options, objective, plugin, monkeypatch) -> None:
    """With the batches of those that are prepared at once; on disk nothing is left behind."""
    at_once = mixture_of(store, options, objective, plugin)
    monkeypatch.setattr(columns, "_CHUNK", 40_000)
    monkeypatch.setattr(lives, "_AT_ONCE", 40_000)
    assert_same_batches(at_once, mixture_of(store, options, objective, plugin))
    assert not [*store.folder.glob(".scratch*")]


class Unread:
    """Column that may not be read."""

    def __init__(self, column: np.ndarray) -> None:
        self.shape, self.dtype, self.ndim, self.nbytes = column.shape, column.dtype, column.ndim, column.nbytes

    def __len__(self) -> int:
        return self.shape[0]


def test_plain_windows_start_without_reading_a_row(store: Histories) -> None:
    """So the start of training does not depend on the size of the histories; with weights it does."""
    plain = replace(CONFIG, keep_every=[1], kept_steps=0, min_final_success=0.0)
    whole = Windows(store, plain, ALIKE, TRAIN[:3], 12, CPU)
    unread = Histories(store.folder, store.manifest, {name: Unread(part) for name, part in store.columns.items()})
    windows = Windows(unread, plain, ALIKE, TRAIN[:3], 12, CPU)
    assert (windows.num_windows, windows.num_rows) == (whole.num_windows, whole.num_rows) == (18 * 119, 18)
    with pytest.raises(TypeError, match="Unread"):
        Windows(unread, plain, replace(ALIKE, weighting="recency"), TRAIN[:3], 12, CPU)
