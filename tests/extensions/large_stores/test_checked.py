"""Files of large stores are checked once."""

from pathlib import Path
from unittest.mock import Mock

import pytest
from harness import flip
from stores import written

from icrl.data.history_store import DamagedHistoriesError, open_histories
from icrl.extensions.large_stores import checked


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
