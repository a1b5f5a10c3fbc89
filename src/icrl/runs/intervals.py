"""Schedule of checkpoints, evaluations, summaries and snapshots over iterations.

Loops only call `Interval.due`, so another rule (such as once every few minutes) changes this file alone.
"""

import math


class Interval:
    """Event that is due `number` times in a run of `total` iterations, or else every `every` of them (0: never)."""

    def __init__(self, number: int, every: int, total: int, *, first: bool = False, end: bool = False) -> None:
        """`first`: also due in each iteration before the first one. `end`: also due in iteration `total`."""
        self._length, self._total, self._first, self._end = interval_of(number, every, total), total, first, end

    def due(self, iteration: int) -> bool:
        """Whether the event is due after `iteration` iterations."""
        if self._end and iteration == self._total:
            return True
        return iteration > 0 and (is_due(iteration, self._length) or (self._first and iteration < self._length))


def interval_of(number: int, interval: int, iterations: int) -> int:
    """Iterations between events that happen `number` times, or every `interval`; 0: never."""
    return math.ceil(iterations / number) if number else interval


def is_due(iteration: int, interval: int) -> bool:
    """Whether `iteration` is a multiple of `interval`; never if `interval` is 0."""
    return bool(interval) and iteration % interval == 0
