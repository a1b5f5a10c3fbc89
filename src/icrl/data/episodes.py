"""Steps of histories whose episodes are thinned out, as stretches of consecutive steps. N rows, T steps."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from icrl.data.columns import Booleans, Integers


class Stretches(NamedTuple):
    """Stretches of consecutive steps of rows, row by row; in a row by phase, then by time."""

    phase: Integers
    row: Integers
    start: Integers  # step of the row
    length: Integers


def stretches(done: Booleans, k: int, kept_steps: int, first_row: int = 0) -> Stretches:
    """The first `kept_steps` steps (0: all) of episodes 0, k, 2k, ..., of 1, k + 1, ... and so on for each phase, in
    rows from `first_row` on whose episodes end at `done` `[N, T]`."""
    num_rows, num_steps = done.shape
    most = kept_steps or num_steps
    if k == 1:
        row = np.arange(first_row, first_row + num_rows)
        return Stretches(np.zeros_like(row), row, np.zeros_like(row), np.full_like(row, min(most, num_steps)))
    begins = np.ones_like(done)
    begins[:, 1:] = done[:, :-1]
    row, start = begins.nonzero()
    length = np.diff(row * num_steps + start, append=done.size)
    phase = (np.arange(len(row)) - np.searchsorted(row, row)) % k  # of the number of the episode in its row
    order = (row * k + phase).argsort(kind="stable")
    phase, row, start, length = phase[order], row[order], start[order], length[order]
    group = row * k + phase
    earlier = length.cumsum() - length
    earlier = earlier - earlier[np.searchsorted(group, group)]  # steps of the same row and phase before
    length = np.minimum(length, most - earlier)
    kept = length > 0
    return Stretches(phase[kept], first_row + row[kept], start[kept], length[kept])


def order_of_stretches(
    found: Sequence[Sequence[Stretches]], keep_every: Sequence[int], num_rows: int, num_steps: int
) -> tuple[Integers, Integers, Integers]:
    """Order of all kept steps: for each k of `keep_every` by phase, then by row. `found` has the stretches of some rows
    for each k, for all rows in order.

    Returns the number of steps of each row that the phases make of rows, and for each stretch the place after its last
    step, and what to add to a place in it for the number of the step among all `num_steps` steps of all rows."""
    lengths, ends, firsts = list[Integers](), list[Integers](), list[Integers]()
    for number, k in enumerate(keep_every):
        phase, row, start, length = (np.concatenate(part) for part in zip(*(one[number] for one in found), strict=True))
        order = phase.argsort(kind="stable")
        lengths.append(np.bincount(phase * num_rows + row, length, k * num_rows).astype(np.int64))
        ends.append(length[order])
        firsts.append((row * num_steps + start)[order])
    length, first = np.concatenate(ends), np.concatenate(firsts)
    end = length.cumsum()
    return np.concatenate(lengths), end, first - (end - length)
