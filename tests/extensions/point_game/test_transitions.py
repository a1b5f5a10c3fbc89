"""Replay of transitions against a plain list of those that were added, and the stopwatch."""

import time
from itertools import accumulate

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from point_learners import CPU, START

from icrl.app.compose import compose_config
from icrl.config.options import replace
from icrl.extensions.point_game.players.learners import Stopwatch, Transitions, transition_replay
from icrl.extensions.point_game.players.options import PlayersConfig
from icrl.extensions.value_sources.replay import stratified
from icrl.randomness import stream_seeds

pytestmark = pytest.mark.quick
UNIFORM = compose_config(PlayersConfig, []).replay
PRIORITISED = replace(UNIFORM, kind="prioritised", alpha=0.5, beta=0.7, eps=0.25)
KEY = stream_seeds(1, 1)[0]


def numbered(first: int, count: int) -> Transitions:
    """Columns of transitions that say their number in every field."""
    number = torch.arange(first, first + count)[:, None]
    row = torch.stack([number, number + 0.5], 2)
    return Transitions(row, number, -number.float(), number % 3 == 0, row + 0.25)


@pytest.mark.parametrize("config", [UNIFORM, PRIORITISED])
@settings(max_examples=25, deadline=None)
@given(size=st.integers(1, 9), counts=st.lists(st.integers(1, 12), min_size=1, max_size=6))
def test_the_newest_are_kept_and_drawn_whole(config: object, size: int, counts: list[int]) -> None:
    """Uniform draws are stratified over the slots."""
    replay, added = transition_replay(replace(config, size=size), 2, torch.float32, CPU), 0
    for count in counts:
        replay.add(numbered(added, count))
        added += count
    drawn = replay.draw(200, KEY, START)
    numbers = drawn.rollout.action[0].tolist()
    assert replay.size == min(added, size) and set(numbers) == set(range(max(0, added - size), added))
    for column, every in zip(drawn.rollout, numbered(0, added), strict=True):
        assert column.dtype == every.dtype and torch.equal(column, every[numbers].transpose(0, 1))
    assert drawn.weight.tolist() == [[1.0] * 200]
    if config == UNIFORM:
        assert drawn.where[0].tolist() == [int(share * replay.size) for share in stratified(200, KEY).tolist()]


def test_a_phase_within_a_phase_counts_for_itself_and_without_a_clock_none_does(monkeypatch) -> None:
    clock = accumulate([100, 1, 2, 4, 8, 16])  # seconds: outer for 1, inner for 2, outer for 4, nobody for 8, inner 16
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    for active, expected in ((False, {}), (True, {"outer": 5000, "inner": 18000})):
        watch = Stopwatch(active, CPU)
        with watch.phase("outer"), watch.phase("inner"):
            pass
        with pytest.raises(ZeroDivisionError), watch.phase("inner"):
            raise ZeroDivisionError
        assert watch.milliseconds == expected
