"""Files of large stores are checked once, and pages are asked for before a batch reads them."""

import mmap
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from harness import flip
from stores import written

from icrl.data.history_store import DamagedHistoriesError, open_histories
from icrl.extensions.large_stores import checked
from icrl.extensions.large_stores.pages import ask_for, pages_of, spans_of


def test_large_files_are_read_once_unless_they_change(tmp_path: Path, monkeypatch) -> None:
    """Small files, and those that were just written, are not noted; a note hides no write, and damage is not noted."""
    folder = written(tmp_path / "store").folder
    note, path = folder / "checked.json", folder / "action.npy"
    sums = Mock(side_effect=checked.sha256)
    monkeypatch.setattr(checked, "sha256", sums)

    def num_read() -> int:
        sums.reset_mock()
        open_histories(folder)
        return sums.call_count

    monkeypatch.setattr(checked, "NOTED_FROM", 1)
    assert num_read() == num_read() == 8 and not note.exists()
    monkeypatch.setattr(checked, "_SETTLED", -1)
    monkeypatch.setattr(checked, "NOTED_FROM", 1 << 26)
    assert num_read() == num_read() == 8 and not note.exists()
    monkeypatch.setattr(checked, "NOTED_FROM", 1)
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


# ---- pages that a batch is about to read, against those of each of its bytes

NUMBERS = np.array([[3, 4, 5, 6], [5000, 5001, 5002, 5003], [5004, 5005, 5006, 5007], [99_000, 99_001, 99_002, 99_003]])


@pytest.mark.parametrize(("offset", "size"), [(0, 1), (128, 8), (4090, 3), (128, 5000)])
def test_the_pages_are_those_of_the_steps_and_no_others(offset: int, size: int) -> None:
    number = NUMBERS.ravel()[:, None] * size + np.arange(size) + offset
    asked = pages_of(spans_of(NUMBERS.ravel()), offset, size)
    pages = {start // mmap.PAGESIZE + page for start, length in asked for page in range(length // mmap.PAGESIZE)}
    assert pages == {*(number // mmap.PAGESIZE).ravel().tolist()}
    assert all(start % mmap.PAGESIZE == 0 for start, _ in asked)


def test_mapped_columns_are_asked_for_and_those_in_memory_are_not(tmp_path: Path) -> None:
    column = np.arange(100_004, dtype=np.int16)[None]
    np.save(tmp_path / "column.npy", column)
    mapped = np.load(tmp_path / "column.npy", mmap_mode="r")
    ask_for([(mapped, NUMBERS), (column, NUMBERS)])
    np.testing.assert_array_equal(mapped.reshape(-1)[NUMBERS], column.reshape(-1)[NUMBERS])
