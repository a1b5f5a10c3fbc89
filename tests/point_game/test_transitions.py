"""Replay of transitions against a plain list of those added, priorities against a plain array, and the stopwatch."""

import time
from itertools import accumulate

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from point_learners import CPU, START

from icrl.collection.replay import Replay, stratified
from icrl.config.compose import load_players_config
from icrl.config.options import replace
from icrl.point_game.learners import Stopwatch, Transitions, transition_replay
from icrl.randomness import stream_seeds

UNIFORM = load_players_config().replay
PRIORITISED = replace(UNIFORM, kind="prioritised", alpha=0.5, beta=0.7, eps=0.25)
BOTH = pytest.mark.parametrize("config", [UNIFORM, PRIORITISED])
KEYS = stream_seeds(1, 4)


def numbered(first: int, count: int) -> Transitions:
    """Columns of transitions that say their number in every field."""
    number = torch.arange(first, first + count)[:, None]
    row = torch.stack([number, number + 0.5], 2)
    return Transitions(row, number, -number.float(), number % 3 == 0, row + 0.25)


def replay_of(config: object, size: int) -> Replay[Transitions]:
    return transition_replay(replace(config, size=size), 2, torch.float32, CPU)


def same(one: Transitions, other: Transitions) -> bool:
    return all(a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(one, other, strict=True))


@BOTH
@settings(max_examples=25, deadline=None)
@given(size=st.integers(1, 9), counts=st.lists(st.integers(1, 12), min_size=1, max_size=6))
def test_the_newest_are_kept_and_drawn_whole(config: object, size: int, counts: list[int]) -> None:
    """Uniform draws are stratified over the slots."""
    replay, added = replay_of(config, size), 0
    for count in counts:
        replay.add(numbered(added, count))
        added += count
    drawn = replay.draw(200, KEYS[0], START)
    numbers = drawn.rollout.action[0].tolist()
    assert replay.size == min(added, size) and set(numbers) == set(range(max(0, added - size), added))
    expected = (column[numbers].transpose(0, 1) for column in numbered(0, added))
    assert same(drawn.rollout, Transitions(*expected))
    assert drawn.weight.tolist() == [[1.0] * 200]
    if config == UNIFORM:
        assert drawn.where[0].tolist() == [int(share * replay.size) for share in stratified(200, KEYS[0]).tolist()]


def test_priorities_are_those_of_a_plain_array() -> None:
    """Draws fall where the cumulative sum says, weights are p^-beta over the largest drawn; what is new counts as much
    as the largest there is."""
    replay, plain = replay_of(PRIORITISED, 16), np.zeros(16)
    for first, count in ((0, 10), (10, 9), (19, 3)):
        replay.add(numbered(first, count))
        plain[np.arange(first, first + count) % 16] = max(plain.max(), 1.0)
        for key in KEYS:
            drawn = replay.draw(32, key, START)
            where = drawn.where[0]
            mass = stratified(32, key).numpy() * plain.sum()
            assert where.tolist() == np.searchsorted(np.cumsum(plain), mass, side="right").tolist()
            weight = (plain[where] / plain[where].min()) ** -0.7
            np.testing.assert_allclose(drawn.weight[0].numpy(), weight, rtol=1e-6)
            td_error = torch.arange(32.0) / 4
            replay.set_priorities(drawn.where, td_error[None], START)
            new = np.zeros(16)
            np.maximum.at(new, where.numpy(), (td_error.numpy() + 0.25) ** 0.5)
            plain = np.where(new > 0, new, plain)


@BOTH
@pytest.mark.parametrize("added", [3, 8, 13])
def test_a_restored_replay_goes_on_alike(config: object, added: int) -> None:
    replay, again = replay_of(config, 8), replay_of(config, 8)
    replay.add(numbered(0, added))
    replay.set_priorities(torch.tensor([[0, 2]]), torch.tensor([[5.0, 0.5]]), START)
    again.load_state_dict(replay.state_dict())
    for one in (replay, again):
        one.add(numbered(added, 3))
    drawn, drawn_again = (one.draw(30, KEYS[0], START) for one in (replay, again))
    assert same(drawn.rollout, drawn_again.rollout) and torch.equal(drawn.weight, drawn_again.weight)


def test_a_phase_within_a_phase_counts_for_itself_and_an_inactive_stopwatch_not_at_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = accumulate([100, 1, 2, 4, 8, 16])  # seconds: outer for 1, inner for 2, outer for 4, nobody for 8, inner 16
    monkeypatch.setattr(time, "perf_counter", lambda: next(clock))
    for active, expected in ((False, {}), (True, {"outer": 5000, "inner": 18000})):
        watch = Stopwatch(active, CPU)
        with watch.phase("outer"), watch.phase("inner"):
            pass
        with pytest.raises(ZeroDivisionError), watch.phase("inner"):
            raise ZeroDivisionError
        assert watch.milliseconds == expected
