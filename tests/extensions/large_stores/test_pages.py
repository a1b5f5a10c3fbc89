"""Pages that a batch is about to read, against those of each of its bytes."""

import mmap
from pathlib import Path

import numpy as np
import pytest

from icrl.extensions.large_stores.pages import ask_for, pages_of, spans_of

NUMBERS = np.array([[3, 4, 5, 6], [5000, 5001, 5002, 5003], [5004, 5005, 5006, 5007], [99_000, 99_001, 99_002, 99_003]])


@pytest.mark.parametrize(("offset", "size"), [(0, 1), (128, 8), (4090, 3), (128, 5000)])
def test_the_pages_are_those_of_the_steps_and_no_others(offset: int, size: int) -> None:
    number = NUMBERS.ravel()[:, None] * size + np.arange(size) + offset
    asked = pages_of(spans_of(NUMBERS.ravel()), offset, size)
    pages = [
        page for start, length in asked for page in range(start // mmap.PAGESIZE, (start + length) // mmap.PAGESIZE)
    ]
    assert {*pages} == {*(number // mmap.PAGESIZE).ravel().tolist()}
    assert all(start % mmap.PAGESIZE == 0 for start, _ in asked)


def test_mapped_columns_are_asked_for_and_those_in_memory_are_not(tmp_path: Path) -> None:
    column = np.arange(100_004, dtype=np.int16)[None]
    np.save(tmp_path / "column.npy", column)
    mapped = np.load(tmp_path / "column.npy", mmap_mode="r")
    ask_for([(mapped, NUMBERS), (column, NUMBERS)])
    np.testing.assert_array_equal(mapped.reshape(-1)[NUMBERS], column.reshape(-1)[NUMBERS])
