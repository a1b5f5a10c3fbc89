"""Phases of a run, timed by a clock of the test's own."""

import time
from itertools import accumulate

import pytest
import torch

from icrl.point_game.learners import Stopwatch


def test_a_phase_within_a_phase_counts_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = accumulate([100, 1, 2, 4, 8, 16])  # seconds: outer for 1, inner for 2, outer for 4, nobody for 8, inner 16
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    watch = Stopwatch(True, torch.device("cpu"))
    with watch.phase("outer"), watch.phase("inner"):
        pass
    with pytest.raises(ZeroDivisionError), watch.phase("inner"):
        raise ZeroDivisionError
    assert watch.milliseconds == {"outer": 5000, "inner": 18000}


def test_nothing_is_measured_unless_asked_for() -> None:
    watch = Stopwatch(False, torch.device("cpu"))
    with watch.phase("outer"):
        pass
    assert watch.milliseconds == {}
