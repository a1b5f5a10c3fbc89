"""Spivakovsky's host against plain Python in exact fractions, and against every agent there can be."""

import pytest
import scalar_points as scalar
import torch
from torch import Tensor

from icrl.point_game.fixed_players import AGENTS, HOSTS
from icrl.point_game.rules import (
    PADDING,
    canonical,
    is_over,
    random_starts,
    reduce,
    reposition,
    shift,
    subset_of,
    subsets,
    trim,
)
from icrl.point_game.spivakovsky import spivakovsky
from icrl.randomness import stream_seeds, uniform

LUCK = torch.zeros(4096)


def starts(dimension: int, num_games: int, rows: int, max_value: int) -> Tensor:
    return random_starts(stream_seeds(dimension, num_games), rows, dimension, max_value)


def named(rows: list[list[int]]) -> list[int]:
    subset = subset_of(spivakovsky(torch.tensor([rows]), LUCK[:1]), len(rows[0]))[0]
    return subset.nonzero()[:, 0].tolist()


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        # l = 2, S = {0}; V = (3/2, 0), (0, 5/2) in {1, 2}. l = 3/2, S = {1}; (5/2) / (3/2) and 5/2: {2} suffices.
        ([[2, 0, 0], [0, 3, 0], [0, 0, 5]], [0, 1, 2]),
        # l = 1, S = {0}; V = (3, 3): of two that are at least 1 the first.
        ([[2, 0, 0], [1, 3, 3]], [0, 1]),
        # l = 4, S = {0}; V = (3/4, 2/4), which only has a sum of 1 with both.
        ([[4, 0, 0], [0, 3, 2]], [0, 1, 2]),
        # l = 2, S = {0, 1}; V is empty, for all others have |x_S| >= 2.
        ([[1, 1, 0], [2, 0, 5], [0, 4, 1]], [0, 1]),
    ],
)
def test_by_hand(rows: list[list[int]], expected: list[int]) -> None:
    assert named(rows) == expected


@pytest.mark.parametrize(
    ("dimension", "rows", "max_value"), [(2, 9, 20), (3, 20, 20), (4, 8, 5), (5, 10, 9), (6, 8, 6), (9, 20, 20)]
)
def test_equals_plain_python(dimension: int, rows: int, max_value: int) -> None:
    """On starts and on what agents make of them, whose coordinates grow."""
    points, table, seeds = starts(dimension, 60, rows, max_value), scalar.subsets(dimension), stream_seeds(5, 60)
    for move in range(12):
        asked = spivakovsky(points, LUCK[: len(points)])
        games = [scalar.left(scalar.rows_of(rows)) for rows in points.tolist()]
        assert [table[action] for action in asked.tolist()] == [scalar.spivakovsky(game) for game in games]
        agent, coords = [*AGENTS.values()][move % 3], subset_of(asked, dimension)
        points = reduce(shift(points, coords, agent(points, coords, uniform(seeds[: len(points)], move))))
        points = points[~is_over(points)]


def answered(points: Tensor, host: str) -> Tensor:
    """Each position that any answer to `host` leads to from `points`, once and repositioned; games that are over are
    left out."""
    coords = subset_of(HOSTS[host](points, LUCK[: len(points)]), points.shape[-1])
    game, axis = coords.nonzero().unbind(1)
    after = canonical(reposition(reduce(shift(points[game], coords[game], axis))))
    return trim(after[~is_over(after)].unique(dim=0))


@pytest.mark.parametrize(
    ("dimension", "rows", "max_value", "games"), [(2, 8, 12, 60), (3, 6, 8, 40), (4, 4, 4, 12), (5, 4, 2, 12)]
)
def test_no_agent_makes_a_game_last_for_ever(dimension: int, rows: int, max_value: int, games: int) -> None:
    """All positions that can be reached in k moves are gone for some k."""
    points = starts(dimension, games, rows, max_value)
    for _ in range(200):
        points = answered(points, "spivakovsky")
        if not len(points):
            return
        assert len(points) < len(LUCK)
    pytest.fail(f"{len(points)} positions after 200 moves")


def test_the_weak_form_can_be_held_off_for_ever() -> None:
    """Of the smallest hitting sets {0, 1} and {1, 2} the first is played, then {0, 2} of {0, 1} or so: after two moves
    the position is what it was. Spivakovsky's own host wins from there."""
    start = points = canonical(torch.tensor([[[0, 2, 0], [1, 0, 2]]]))
    for _ in range(2):
        coords = subset_of(HOSTS["weak_spivakovsky_first"](points, LUCK[:1]), 3)
        points = canonical(reposition(shift(points, coords, AGENTS["first"](points, coords, LUCK[:1]))))
    assert torch.equal(points, start)
    points = start
    while len(points):
        points = answered(points, "spivakovsky")


def test_the_order_of_rows_and_what_lies_below_all_do_not_matter() -> None:
    points = starts(5, 200, 8, 9)
    order = torch.randperm(8, generator=torch.Generator().manual_seed(0))
    moved = torch.where(points >= 0, points + torch.arange(5) * 7, PADDING)
    expected = spivakovsky(points, LUCK[:200])
    assert torch.equal(spivakovsky(points[:, order], LUCK[:200]), expected)
    assert torch.equal(spivakovsky(moved, LUCK[:200]), expected)
    assert len(expected.unique()) > len(subsets(5)) // 4
