"""Replay of transitions against a plain list of those that were added, and priorities against a plain array."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from icrl.collection.replay import Replay, stratified
from icrl.config.compose import load_players_config
from icrl.config.options import replace
from icrl.config.schedules import Clock
from icrl.point_game.learners import Transitions, transition_replay
from icrl.randomness import stream_seeds

UNIFORM = load_players_config().replay
PRIORITISED = replace(UNIFORM, kind="prioritised", alpha=0.5, beta=0.7, eps=0.25)
START = Clock(0, 0, 0, 0)


def numbered(first: int, count: int) -> Transitions:
    """Transitions that say their number in every column."""
    number = torch.arange(first, first + count)
    row = torch.stack([number, number + 0.5], 1)
    return Transitions(row, number, -number.float(), number % 3 == 0, row + 0.25)


def replay_of(config: object, size: int) -> Replay[Transitions]:
    return transition_replay(replace(config, size=size), 2, torch.float32, torch.device("cpu"))


def as_columns(transitions):
    return Transitions(*(column[:, None] for column in transitions))


def drawn_transitions(columns):
    return Transitions(*(column[0] for column in columns))


def key(seed: int) -> Tensor:
    return stream_seeds(seed, 1)[0]


def same(one: Transitions, other: Transitions) -> bool:
    return all(a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(one, other, strict=True))


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 9), st.lists(st.integers(1, 12), min_size=1, max_size=6), st.sampled_from([UNIFORM, PRIORITISED]))
def test_the_newest_are_kept_and_drawn_whole(size: int, counts: list[int], config: object) -> None:
    replay, added = replay_of(config, size), 0
    for count in counts:
        replay.add(as_columns(numbered(added, count)))
        added += count
    assert replay.size == min(added, size)
    drawn = replay.draw(200, key(1), START)
    found = drawn_transitions(drawn.rollout)
    numbers = found.action
    assert set(numbers.tolist()) == set(range(max(0, added - size), added))
    expected = [numbered(int(number), 1) for number in numbers]
    assert same(found, Transitions(*map(torch.cat, zip(*expected, strict=True))))
    assert drawn.weight.tolist() == [[1.0] * 200]


def test_uniform_draws_are_stratified() -> None:
    replay = replay_of(UNIFORM, 50)
    replay.add(as_columns(numbered(0, 20)))
    drawn = replay.draw(40, key(3), START)
    assert drawn.where[0].tolist() == [int(share * 20) for share in stratified(40, key(3)).tolist()]
    assert drawn_transitions(drawn.rollout).action.bincount().tolist() == [2] * 20


def test_priorities_are_those_of_a_plain_array() -> None:
    """Draws fall where the cumulative sum says, weights are p^-beta over the largest drawn; what is new counts as much
    as the largest there is."""
    replay, plain = replay_of(PRIORITISED, 16), np.zeros(16)
    for first, count in ((0, 10), (10, 9), (19, 3)):
        replay.add(as_columns(numbered(first, count)))
        plain[np.arange(first, first + count) % 16] = max(plain.max(), 1.0)
        for seed in range(3):
            drawn = replay.draw(32, key(seed), START)
            where = drawn.where[0]
            mass = stratified(32, key(seed)).numpy() * plain.sum()
            assert where.tolist() == np.searchsorted(np.cumsum(plain), mass, side="right").tolist()
            weight = (plain[where] / plain[where].min()) ** -0.7
            np.testing.assert_allclose(drawn.weight[0].numpy(), weight, rtol=1e-6)
            td_error = torch.arange(32.0) / 4
            replay.set_priorities(drawn.where, td_error[None], START)
            new = np.zeros(16)
            np.maximum.at(new, where.numpy(), (td_error.numpy() + 0.25) ** 0.5)
            plain = np.where(new > 0, new, plain)


@pytest.mark.parametrize("config", [UNIFORM, PRIORITISED])
@pytest.mark.parametrize("added", [3, 8, 13])
def test_a_restored_replay_goes_on_alike(config: object, added: int) -> None:
    replay, again = replay_of(config, 8), replay_of(config, 8)
    replay.add(as_columns(numbered(0, added)))
    replay.set_priorities(torch.tensor([[0, 2]]), torch.tensor([[5.0, 0.5]]), START)
    again.load_state_dict(replay.state_dict())
    for one in (replay, again):
        one.add(as_columns(numbered(added, 3)))
    drawn, drawn_again = (one.draw(30, key(2), START) for one in (replay, again))
    assert same(drawn.rollout, drawn_again.rollout)
    assert torch.equal(drawn.weight, drawn_again.weight)
