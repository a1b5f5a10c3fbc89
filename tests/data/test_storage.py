"""Large stores stay on disk, with the batches of those in memory, and files are checked once."""

import shutil
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from harness import flip
from lives import ALIKE, CONFIG, CPU
from stores import KINDS, TRAIN, assert_same_batches, mixture_of, written

from icrl.config.options import replace
from icrl.data import checksums, columns, mapped
from icrl.data.history_store import DamagedHistoriesError, Histories, open_histories
from icrl.data.windows import Windows


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Histories:
    return written(tmp_path_factory.mktemp("histories") / "whole")


@pytest.mark.parametrize(("options", "objective", "plugin"), KINDS)
@pytest.mark.parametrize("chunk", [2**27, 40_000])
def test_batches_from_disk_are_those_from_memory(
    store: Histories, options, objective, plugin, chunk, monkeypatch
) -> None:
    """Whether rows are prepared at once or few at a time; on disk nothing is left behind."""
    monkeypatch.setattr(columns, "_CHUNK", chunk)
    memory, other = (mixture_of(store, storage, options, objective, plugin) for storage in ("memory", "disk"))
    assert_same_batches(memory, other)
    assert other.is_mapped and not memory.is_mapped and not [*store.folder.glob(".scratch*")]


class Unread:
    """Column that may not be read."""

    def __init__(self, column: np.ndarray) -> None:
        self.shape, self.dtype, self.ndim, self.nbytes = column.shape, column.dtype, column.ndim, column.nbytes

    def __len__(self) -> int:
        return self.shape[0]


def test_plain_windows_on_disk_start_without_reading_a_row(store: Histories, monkeypatch) -> None:
    """So the start of training does not depend on the size of the histories; with weights it does."""
    monkeypatch.setattr("icrl.data.windows.is_too_large", lambda *_: True)
    plain = replace(CONFIG, keep_every=[1], kept_steps=0, min_final_success=0.0)
    whole = Windows(store, plain, ALIKE, TRAIN[:3], 12, CPU)
    unread = Histories(store.folder, store.manifest, {name: Unread(part) for name, part in store.columns.items()})
    windows = Windows(unread, plain, ALIKE, TRAIN[:3], 12, CPU)
    assert (windows.num_windows, windows.num_rows) == (whole.num_windows, whole.num_rows) == (18 * 119, 18)
    with pytest.raises(TypeError, match="Unread"):
        Windows(unread, plain, replace(ALIKE, weighting="recency"), TRAIN[:3], 12, CPU)


def test_stores_larger_than_a_share_of_the_memory_stay_on_disk(store: Histories, monkeypatch) -> None:
    size = sum(column.nbytes for column in store.columns.values())
    for free, on_disk in ((4 * size, False), (4 * size - 1, True), (None, False)):
        monkeypatch.setattr(mapped, "free_memory", lambda _, free=free: free)
        assert Windows(store, CONFIG, ALIKE, TRAIN, 9, CPU).is_mapped == on_disk


def test_large_files_are_read_once_unless_they_change(store: Histories, tmp_path: Path, monkeypatch) -> None:
    """Small files, and those that were just written, are not noted; a note hides no write, and damage is not noted."""
    folder = Path(shutil.copytree(store.folder, tmp_path / "copy"))
    note, path = folder / "checked.json", folder / "action.npy"
    sums = Mock(side_effect=checksums.sha256)
    monkeypatch.setattr(checksums, "sha256", sums)

    def num_read() -> int:
        sums.reset_mock()
        open_histories(folder)
        return sums.call_count

    monkeypatch.setattr(checksums, "NOTED_FROM", 1)
    assert num_read() == num_read() == 8 and not note.exists()
    monkeypatch.setattr(checksums, "_SETTLED", -1)
    monkeypatch.setattr(checksums, "NOTED_FROM", 1 << 26)
    assert num_read() == num_read() == 8 and not note.exists()
    monkeypatch.setattr(checksums, "NOTED_FROM", 1)
    assert [num_read(), num_read()] == [8, 0] and note.exists()
    path.write_bytes(path.read_bytes())
    assert [num_read(), num_read()] == [1, 0]
    flip(path, -1)
    for _ in range(2):
        with pytest.raises(DamagedHistoriesError, match="is damaged"):
            open_histories(folder)
    flip(path, -1)
    assert [num_read(), num_read()] == [1, 0]
    note.unlink()
    assert num_read() == 8
    note.write_text("{}")
    assert num_read() == 8
