"""Pages of mapped files that a batch is about to read, at random.

They are asked for all at once, so the disk serves them together, not one after the other; on most disks this is what
makes windows from disk as fast as training.
"""

import math
import mmap
from collections.abc import Sequence
from weakref import WeakSet

import numpy as np

_WILL_NEED, _RANDOM = getattr(mmap, "MADV_WILLNEED", None), getattr(mmap, "MADV_RANDOM", None)
_read_at_random = WeakSet[mmap.mmap]()
Spans = tuple[np.ndarray, np.ndarray]  # first numbers of consecutive steps, and the numbers after their last


def ask_for(reads: Sequence[tuple[np.ndarray, np.ndarray]]) -> None:
    """Ask the system to read the steps with these numbers of each column, without waiting for them, and no more: a page
    that has been dropped before its use would otherwise bring its neighbours with it, up to megabytes, and these would
    drive out others. Columns in memory are left out."""
    if _WILL_NEED is None or _RANDOM is None:
        return
    found = dict[tuple[int, int, int], list[tuple[int, int]]]()  # columns share their pages if their dtypes agree
    for column, numbers in reads:
        if not isinstance(column, np.memmap) or not isinstance(file := column.base, mmap.mmap):
            continue
        if file not in _read_at_random:
            _read_at_random.add(file)
            file.madvise(_RANDOM)
        offset, size = column.offset % mmap.ALLOCATIONGRANULARITY, column.dtype.itemsize * math.prod(column.shape[2:])
        if (key := (id(numbers), offset, size)) not in found:
            found[key] = pages_of(spans_of(numbers.ravel()), offset, size)
        for start, length in found[key]:
            file.madvise(_WILL_NEED, start, length)


def spans_of(numbers: np.ndarray) -> Spans:
    """Spans of `numbers` that follow each other."""
    gaps = np.flatnonzero(np.diff(numbers) != 1)
    return numbers[np.append(0, gaps + 1)], numbers[np.append(gaps, -1)] + 1


def pages_of(spans: Spans, offset: int, size: int) -> list[tuple[int, int]]:
    """Start and length in bytes of the pages with the steps in `spans`, of `size` bytes each, the first at `offset`."""
    first = (offset + spans[0] * size) // mmap.PAGESIZE
    last = (offset + spans[1] * size - 1) // mmap.PAGESIZE
    new = np.append(True, (first[1:] != first[:-1]) | (last[1:] != last[:-1]))
    starts, lengths = first[new] * mmap.PAGESIZE, (last[new] - first[new] + 1) * mmap.PAGESIZE
    return [*zip(starts.tolist(), lengths.tolist(), strict=True)]
