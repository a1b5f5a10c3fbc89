"""Columns on disk, of which batches read a few steps, and room on disk for columns that are computed from others.

A batch reads a few pages of each column, at random. They are asked for all at once, so the disk serves them together,
not one after the other; on most disks this is what makes windows from disk as fast as training.
"""

import math
import mmap
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from icrl.contracts import PipelineError
from icrl.data.columns import bytes_of, row_chunks
from icrl.runs.files import reserve

_WILL_NEED, _RANDOM = getattr(mmap, "MADV_WILLNEED", None), getattr(mmap, "MADV_RANDOM", None)


def scratch(folder: Path, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Array on disk that disappears with this process: in `folder`, or the system's folder of temporary files if that
    may only be read. Raises `PipelineError` if there is no room."""
    where = folder if os.access(folder, os.W_OK) else None
    try:
        with NamedTemporaryFile(dir=where, prefix=".scratch-") as file:
            reserve(Path(file.name), max(1, math.prod(shape) * np.dtype(dtype).itemsize))
            return np.memmap(file.name, dtype, "r+", shape=shape)
    except OSError as error:
        raise PipelineError(f"cannot write to {where or 'TMPDIR'}: {error.strerror}; set TMPDIR") from error


class _Part(NamedTuple):
    """Column of one file, or an array in memory."""

    array: np.ndarray
    pages: mmap.mmap | None  # the file, if it is mapped
    offset: int  # of the array in the mapped pages, in bytes

    @classmethod
    def of(cls, column: np.ndarray) -> Self:
        if isinstance(column, np.memmap) and isinstance(column.base, mmap.mmap):
            return cls(np.asarray(column), column.base, column.offset % mmap.ALLOCATIONGRANULARITY)
        return cls(column, None, 0)

    def expect_random_reads(self) -> None:
        """Read no more than is asked for from now on: a page that has been dropped before its use would otherwise bring
        its neighbours with it, up to megabytes, and these would drive out others."""
        if self.pages is not None and _RANDOM is not None:
            self.pages.madvise(_RANDOM)

    def ask_for(self, steps: "_Steps") -> None:
        """Ask the system to read the pages with these `steps`, without waiting for them."""
        if self.pages is not None and _WILL_NEED is not None:
            size = self.array.dtype.itemsize * math.prod(self.array.shape[2:])
            for start, length in steps.pages(self.offset, size):
                self.pages.madvise(_WILL_NEED, start, length)

    def read(self, steps: "_Steps") -> np.ndarray:
        """The `steps`, `[B, T, ...]`."""
        return self.array.reshape(-1, *self.array.shape[2:])[steps.numbers]


class _Steps:
    """Numbers of steps `[B, T]` in the flat columns of some parts, which share their pages if their dtypes agree."""

    def __init__(self, rows: np.ndarray, steps: np.ndarray, row_len: int) -> None:
        """`steps` `[B, T]` of `rows` `[B]` that have `row_len` steps."""
        self.numbers = rows[:, None] * row_len + steps
        flat = self.numbers.ravel()
        gaps = np.flatnonzero(np.diff(flat) != 1)
        self._start, self._end = flat[np.append(0, gaps + 1)], flat[np.append(gaps, -1)] + 1  # of consecutive ones
        self._pages = dict[tuple[int, int], list[tuple[int, int]]]()

    def pages(self, offset: int, size: int) -> list[tuple[int, int]]:
        """Start and length in bytes of the pages with these steps of `size` bytes each, the first at `offset`."""
        if (offset, size) not in self._pages:
            first = (offset + self._start * size) // mmap.PAGESIZE
            last = (offset + self._end * size - 1) // mmap.PAGESIZE
            new = np.append(True, (first[1:] != first[:-1]) | (last[1:] != last[:-1]))
            starts, lengths = first[new] * mmap.PAGESIZE, (last[new] - first[new] + 1) * mmap.PAGESIZE
            self._pages[offset, size] = [*zip(starts.tolist(), lengths.tolist(), strict=True)]
        return self._pages[offset, size]


class MappedSteps:
    """The first `num_steps` steps of chosen rows, read from disk as they are used: of `recorded` columns the `rows`, of
    `computed` ones all. A step has the number it would have if these rows were one after the other."""

    def __init__(
        self, recorded: Mapping[str, Any], computed: Mapping[str, np.ndarray], rows: np.ndarray, num_steps: int
    ) -> None:
        self._columns = {**recorded, **computed}
        self._computed = {name: _Part.of(column) for name, column in computed.items()}
        self._rows, self._num_steps = rows, num_steps
        kept = {name: column for name, column in recorded.items() if name not in computed}
        self._recorded = {
            name: [_Part.of(part) for part in getattr(column, "parts", [column])] for name, column in kept.items()
        }
        lengths = [len(part.array) for part in next(iter(self._recorded.values()))]
        self._ends = np.cumsum(lengths)
        self._starts = self._ends - lengths
        self._is_read_at_random = False

    def read(self, numbers: Tensor) -> dict[str, Tensor]:
        """Steps with these numbers `[B, T]`, by column; those of a window, `[T]`, ascend and are of one row."""
        if not self._is_read_at_random:  # before the first batch, columns are read from start to end
            self._is_read_at_random = True
            for column in (*self._computed.values(), *(part for parts in self._recorded.values() for part in parts)):
                column.expect_random_reads()
        row, step = numbers[:, 0].numpy() // self._num_steps, numbers.numpy() % self._num_steps
        everything: Any = slice(None)
        chosen = _Steps(row, step, self._num_steps)
        reads = [(name, column, everything, chosen) for name, column in self._computed.items()]
        there = self._rows[row]
        part = np.searchsorted(self._ends, there, side="right")
        for number in np.unique(part):
            which = everything if len(self._ends) == 1 else np.flatnonzero(part == number)
            columns = {name: parts[number] for name, parts in self._recorded.items()}
            row_len = next(iter(columns.values())).array.shape[1]
            chosen = _Steps(there[which] - self._starts[number], step[which], row_len)
            reads += [(name, column, which, chosen) for name, column in columns.items()]
        for _, column, _, chosen in reads:  # all before the first is read
            column.ask_for(chosen)
        found: dict[str, np.ndarray] = {}
        for name, column, which, chosen in reads:
            steps = column.read(chosen)
            if which is everything:
                found[name] = steps
            else:
                found.setdefault(name, np.empty((*step.shape, *steps.shape[2:]), steps.dtype))[which] = steps
        return {name: torch.from_numpy(column) for name, column in found.items()}

    def chunks(self, name: str) -> Iterator[np.ndarray]:
        """All steps of a column, `[rows, steps, ...]` of some rows at a time."""
        column = self._columns[name]
        for chunk in row_chunks(len(self._rows), bytes_of([column], self._num_steps)):
            yield column[chunk if name in self._computed else self._rows[chunk], : self._num_steps]
