"""The fixed players of the polyhedra game against plain Python and against what they promise."""

from random import Random

import pytest
import scalar_points as scalar
import torch
from torch import Tensor

from icrl.point_game.fixed_players import (
    AGENTS,
    HOSTS,
    choose,
    first_agent,
    last_agent,
    random_agent,
    weak_spivakovsky,
    weak_spivakovsky_first,
    zeillinger,
    zeillinger_lexicographic,
)
from icrl.point_game.rules import PADDING, is_over, random_starts, reduce, shift, subset_of, subsets
from icrl.randomness import stream_seeds, uniform

LUCK = uniform(stream_seeds(9, 400), 0)
HIGHEST = 1 - 2**-24  # the highest noise there is


def starts(dimension: int, num_games: int = 400, rows: int = 8, max_value: int = 5) -> Tensor:
    return random_starts(stream_seeds(dimension, num_games), rows, dimension, max_value)


def shares(actions: Tensor, count: int) -> list[float]:
    return (actions.bincount(minlength=count) / len(actions)).tolist()


@pytest.mark.parametrize("dimension", [2, 3, 4, 5])
@pytest.mark.parametrize(
    ("host", "expected"),
    [(zeillinger, scalar.zeillinger), (zeillinger_lexicographic, scalar.zeillinger_lexicographic)],
)
def test_zeillinger_equals_plain_python(host, expected, dimension: int) -> None:
    """On starts, where keys tie often, and some moves later, where rows between points are gone; and when rescaled by
    what floats hold exactly."""
    points = starts(dimension)
    for move in range(3):
        table = scalar.subsets(dimension)
        going = points[~is_over(points)]
        asked = host(going, LUCK)
        games = [scalar.left(scalar.rows_of(rows)) for rows in going.tolist()]
        assert [table[action] for action in asked.tolist()] == [expected(game, Random(0)) for game in games]
        assert torch.equal(host(going / 8 * (going >= 0) - (going < 0).double(), LUCK), asked)
        coords = subset_of(host(points, LUCK), dimension)
        points = reduce(shift(points, coords, [first_agent, last_agent][move % 2](points, coords, LUCK)))


@pytest.mark.parametrize(
    ("rows", "keys", "subset"),
    [
        ([[2, 9, 0], [0, 0, 9], [4, 1, 5]], [(18, 2, (1, 2)), (13, 2, (1, 2)), (8, 2, (0, 2))], [1, 0, 1]),
        ([[0, 3, 3], [2, 2, 2], [2, 3, 0]], [(3, 3, (0, 1)), (5, 2, (0, 2)), (3, 2, (1, 2))], [0, 1, 1]),
    ],
)
def test_zeillinger_by_hand(rows: list[list[int]], keys: list, subset: list[int]) -> None:
    """Length first, then how many coordinates reach the smallest or the largest difference."""
    assert scalar.zeillinger_keys(scalar.left(scalar.rows_of(rows))) == keys
    for host in (zeillinger, zeillinger_lexicographic):
        assert subset_of(host(torch.tensor([rows]), LUCK[:1]), 3)[0].long().tolist() == subset


def test_ties_of_zeillinger() -> None:
    """Every pair has the key (2, 2), with the subsets {1, 2}, {0, 1} and {0, 2}."""
    points = torch.tensor([[[5, 1, 0], [5, 0, 1], [6, 0, 0]]])
    for rows, first in (([0, 1, 2], [0, 1, 1]), ([1, 0, 2], [0, 1, 1]), ([0, 2, 1], [1, 1, 0])):
        assert subset_of(zeillinger(points[:, rows], LUCK[:1]), 3).long().tolist() == [first]
        assert subset_of(zeillinger_lexicographic(points[:, rows], LUCK[:1]), 3).long().tolist() == [[1, 1, 0]]


def test_lexicographic_zeillinger_is_blind_to_order() -> None:
    points = starts(4)
    order = torch.randperm(8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(zeillinger_lexicographic(points[:, order], LUCK), zeillinger_lexicographic(points, LUCK))


def test_equal_points_give_the_first_pair() -> None:
    points = torch.tensor([[[2, 2, 2], [2, 2, 2]], [[1, 1, 1], [3, 3, 3]]])
    for host in (zeillinger, zeillinger_lexicographic):
        assert host(points, LUCK[:2]).tolist() == [0, 0]


@pytest.mark.parametrize("dimension", [2, 3, 4, 5, 7])
def test_hitting_sets_equal_plain_python(dimension: int) -> None:
    points = starts(dimension, rows=4, max_value=3)
    table = scalar.subsets(dimension)
    smallest = [scalar.smallest_hitting_sets(scalar.left(scalar.rows_of(rows))) for rows in points.tolist()]
    assert [table[action] for action in weak_spivakovsky_first(points, LUCK).tolist()] == [each[0] for each in smallest]
    sizes = set[int]()
    for which in range(len(points)):
        luck = torch.linspace(0, HIGHEST, 60)
        found = weak_spivakovsky(points[which].expand(60, -1, -1), luck)
        assert {table[action] for action in found.tolist()} == {*smallest[which]}
        sizes |= {len(smallest[which][0])}
    assert sizes == ({2, 3} if 2 < dimension < 7 else {2})


def test_choice_is_uniform_over_what_is_allowed() -> None:
    allowed = torch.tensor([[False, True, True, False, True]]).expand(3000, -1)
    chosen = choose(allowed, torch.linspace(0, HIGHEST, 3000))
    assert shares(chosen, 5) == pytest.approx([0, 1 / 3, 1 / 3, 0, 1 / 3], abs=1e-3)
    for count in (1, 3, 5, 9, 1000):
        ends = choose(torch.ones(2, count, dtype=torch.bool), torch.tensor([0.0, HIGHEST]))
        assert ends.tolist() == [0, count - 1]


def test_random_hosts_are_uniform() -> None:
    points, luck = starts(4)[:1].expand(6000, -1, -1), torch.linspace(0, HIGHEST, 6000)
    pairs = (subsets(4).sum(1) == 2).double() / 6
    assert shares(HOSTS["random_pair"](points, luck), 11) == pytest.approx(pairs.tolist(), abs=1e-3)
    assert shares(HOSTS["random_subset"](points, luck), 11) == pytest.approx([1 / 11] * 11, abs=1e-3)
    assert shares(HOSTS["all_coordinates"](points, luck), 11) == [0] * 10 + [1]


def test_agents_by_hand() -> None:
    coords = torch.tensor([[0, 1, 1, 0, 1], [1, 0, 0, 0, 1], [0, 0, 1, 1, 0]]).bool()
    points = torch.zeros(3, 2, 5)
    assert first_agent(points, coords, LUCK[:3]).tolist() == [1, 0, 2]
    assert last_agent(points, coords, LUCK[:3]).tolist() == [4, 4, 3]
    for noise, expected in ((0.0, [1, 0, 2]), (0.4, [2, 0, 2]), (0.7, [4, 4, 3]), (HIGHEST, [4, 4, 3])):
        assert random_agent(points, coords, torch.full((3,), noise)).tolist() == expected


@pytest.mark.parametrize("dimension", [2, 3, 5])
def test_everyone_moves_legally_in_every_position(dimension: int) -> None:
    """In games that are over too, and whichever games are beside."""
    points = starts(dimension, 60)
    points[20:40, 1:] = PADDING
    points[40:] = PADDING
    for noise in (LUCK[:60], torch.zeros(60), torch.full((60,), HIGHEST)):
        for host in HOSTS.values():
            action = host(points, noise)
            assert action.dtype == torch.int64 and action.shape == (60,)
            coords = subset_of(action, dimension)
            some = torch.tensor([50, 3, 25])
            assert torch.equal(host(points[some], noise[some]), action[some])
            assert torch.equal(host(points[45:46], noise[45:46]), action[45:46])
            for agent in AGENTS.values():
                assert coords.gather(1, agent(points, coords, noise)[:, None]).all()


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize(
    ("dimension", "rows", "max_value", "moves"), [(2, 20, 20, 25), (3, 20, 20, 250), (4, 5, 5, 100)]
)
@pytest.mark.parametrize("host", ["zeillinger", "zeillinger_lexicographic", "spivakovsky"])
def test_some_hosts_always_win(host: str, dimension: int, rows: int, max_value: int, moves: int, agent: str) -> None:
    points, seeds = starts(dimension, 300, rows, max_value), stream_seeds(5, 300)
    for move in range(moves):
        coords = subset_of(HOSTS[host](points, uniform(seeds, 2 * move)), dimension)
        points = reduce(shift(points, coords, AGENTS[agent](points, coords, uniform(seeds, 2 * move + 1))))
        points = points[~is_over(points)]
        seeds = seeds[: len(points)]
        if not len(points):
            return
    pytest.fail(f"{len(points)} games are not over")


def test_zeillingers_measure_goes_down() -> None:
    points = starts(3, 40)

    def measures(points: Tensor) -> list[tuple]:
        games = [scalar.left(scalar.rows_of(rows)) for rows in points.tolist()]
        return [(len(game), min(scalar.zeillinger_keys(game), default=((),))[:2]) for game in games]

    before = measures(points)
    for _ in range(12):
        going = ~is_over(points)
        coords = subset_of(zeillinger(points, LUCK[:40]), 3)
        points = reduce(shift(points, coords, random_agent(points, coords, LUCK[:40])))
        after = measures(points)
        for new, old, on in zip(after, before, going.tolist(), strict=True):
            assert not on or new[0] < old[0] or new < old
        before = after
