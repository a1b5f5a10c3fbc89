"""The rules of the polyhedra game against plain Python, and the symmetries that a batch of games must have."""

from fractions import Fraction
from random import Random

import pytest
import scalar_points as scalar
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from icrl.point_game.rules import (
    PADDING,
    action_of,
    available,
    canonical,
    is_over,
    legal_axes,
    num_points,
    random_points,
    random_starts,
    reduce,
    reposition,
    rescale,
    shift,
    subset_of,
    subsets,
    trim,
)
from icrl.randomness import stream_seeds

KNOWN = [[1, 2, 3, 4], [2, 3, 4, 5], [4, 1, 2, 3], [1, 6, 7, 3]]
GONE = [PADDING] * 4


def tensor_of(games: list[scalar.Points], dimension: int) -> Tensor:
    gone = (PADDING,) * dimension
    return torch.tensor([[gone if point is None else point for point in points] for points in games])


@st.composite
def positions(draw: st.DrawFn, max_value: int = 4) -> Tensor:
    """`[B, N, n]`: small coordinates, so that ties, equal points and removed rows abound."""
    num_games, rows, dimension = draw(st.integers(1, 4)), draw(st.integers(1, 6)), draw(st.integers(2, 4))
    point = st.tuples(*[st.integers(0, max_value)] * dimension)
    row = st.one_of(point, point, point, st.just((PADDING,) * dimension))
    size = num_games * rows
    return torch.tensor(draw(st.lists(row, min_size=size, max_size=size))).view(num_games, rows, dimension)


@st.composite
def moves(draw: st.DrawFn) -> tuple[Tensor, Tensor, Tensor]:
    """A position, a subset for each game and a coordinate that may not be in it."""
    points = draw(positions())
    num_games, _, dimension = points.shape

    def numbers(high: int) -> Tensor:
        return torch.tensor(draw(st.lists(st.integers(0, high), min_size=num_games, max_size=num_games)))

    return points, subset_of(numbers(len(subsets(dimension)) - 1), dimension), numbers(dimension - 1)


def test_a_game_worked_by_hand() -> None:
    reduced = reduce(torch.tensor([KNOWN]))
    assert reduced.tolist() == [[KNOWN[0], GONE, *KNOWN[2:]]]
    moved = shift(reduced, torch.tensor([[0, 1, 1, 0]]), torch.tensor([1]))
    assert moved.tolist() == [[[1, 5, 3, 4], GONE, [4, 3, 2, 3], [1, 13, 7, 3]]]
    assert num_points(moved).tolist() == [3]


@pytest.mark.parametrize("dimension", [2, 3, 4, 5])
def test_ten_thousand_games_equal_plain_python(dimension: int) -> None:
    """2500 games in each dimension, with illegal answers among the moves; float64 plays the same game."""
    random, table = Random(dimension), scalar.subsets(dimension)
    games: list[scalar.Points] = [
        [tuple(random.randint(0, 6) for _ in range(dimension)) for _ in range(7)] for _ in range(2500)
    ]
    points = reduce(tensor_of(games, dimension))
    floats, overs = points.double(), 0
    games = [scalar.reduce(game) for game in games]
    for _ in range(8):
        assert torch.equal(points, tensor_of(games, dimension))
        assert torch.equal(floats, points.double())
        overs += int(is_over(points).sum())
        asked = [random.randrange(len(table)) for _ in games]
        axes = [random.randrange(dimension) for _ in games]
        games = [
            scalar.reduce(scalar.shift(game, table[action], axis))
            for game, action, axis in zip(games, asked, axes, strict=True)
        ]
        coords, axis = subset_of(torch.tensor(asked), dimension), torch.tensor(axes)
        points, floats = reduce(shift(points, coords, axis)), reduce(shift(floats, coords, axis))
    assert 1000 < overs < 18000  # some are over and some go on


@given(moves())
def test_any_position_equals_plain_python(move: tuple[Tensor, Tensor, Tensor]) -> None:
    """Also those that are not reduced, shift by itself, and whatever the layout in memory."""
    points, coords, axis = move
    dimension = points.shape[-1]
    games = [scalar.rows_of(rows) for rows in points.tolist()]
    asked = [tuple(coord.nonzero()[:, 0].tolist()) for coord in coords]
    shifted = [scalar.shift(*each) for each in zip(games, asked, axis.tolist(), strict=True)]
    layout = points.permute(2, 1, 0).contiguous().permute(2, 1, 0)
    for same in (points, layout):
        before = same.clone()
        assert torch.equal(shift(same, coords, axis), tensor_of(shifted, dimension))
        assert torch.equal(reduce(same), tensor_of([scalar.reduce(game) for game in games], dimension))
        assert torch.equal(same, before)  # nothing is done in place
    assert num_points(points).tolist() == [len(scalar.left(game)) for game in games]
    assert is_over(points).tolist() == [len(scalar.left(game)) <= 1 for game in games]
    assert torch.equal(legal_axes(points, coords), coords & ~is_over(points)[:, None])


@given(positions(), st.randoms(use_true_random=False))
def test_reduction_is_idempotent_and_blind_to_order(points: Tensor, random: Random) -> None:
    reduced = reduce(points)
    assert torch.equal(reduce(reduced), reduced)
    assert ((reduced == points) | (reduced == PADDING)).all()  # what stays keeps its row
    for axis in range(3):  # games, rows, coordinates
        order = torch.tensor(random.sample(range(points.shape[axis]), points.shape[axis]))
        moved = reduce(points.index_select(axis, order))
        expected = reduced.index_select(axis, order)
        if axis == 1:  # of equal points another one stays
            moved, expected = canonical(moved), canonical(expected)
        assert torch.equal(moved, expected)


@pytest.mark.parametrize("top", [*(2**bits + more for bits in (7, 15, 31, 53) for more in (-3, -2, -1, 0)), 2**62])
@pytest.mark.parametrize("dimension", [2, 3])
def test_numbers_of_any_size_equal_plain_python(top: int, dimension: int) -> None:
    """Around the limits of what is computed in fewer bits; floats too, where they are exact."""
    random = Random(top)
    games: list[scalar.Points] = [
        [random.choice([None, tuple(random.choice([0, 1, top - 1, top]) for _ in range(dimension))]) for _ in range(9)]
        for _ in range(60)
    ]
    points, expected = tensor_of(games, dimension), tensor_of([scalar.reduce(game) for game in games], dimension)
    assert torch.equal(reduce(points), expected)
    assert canonical(points).tolist() == [sorted(rows, reverse=True) for rows in points.tolist()]
    alone = torch.tensor([[[PADDING] * dimension, [top] * dimension]])  # padding must stay above any point
    assert torch.equal(reduce(alone), alone)
    if top <= 2**53:
        assert torch.equal(reduce(points.double()), expected.double())
        assert torch.equal(canonical(points.double()), canonical(points).double())


def test_games_in_one_call_have_numbers_of_their_own_size() -> None:
    """More games than are treated at a time, most of them small, some large."""
    small = random_points(stream_seeds(6, 2500), 6, 3, 9)
    points = small * torch.where(torch.arange(2500) % 999 == 3, 2**40, 1)[:, None, None]
    gone = reduce(small) < 0
    assert torch.equal(reduce(points), torch.where(gone, PADDING, points))
    assert torch.equal(reduce(points[:1024]), reduce(points)[:1024])


def test_zero_has_no_sign() -> None:
    points = torch.tensor([[[-0.0, 1.0], [0.0, -0.0]], [[0.5, -0.0], [0.25, 0.0]]], dtype=torch.float64)
    assert num_points(reduce(points)).tolist() == [1, 1]


def test_of_equal_points_the_first_stays() -> None:
    points = torch.tensor([[[2, 2], [1, 3], [2, 2], [1, 3], [1, 3]]])
    assert reduce(points).tolist() == [[[2, 2], [1, 3], *[[PADDING] * 2] * 3]]


def test_zero_is_a_coordinate_and_padding_is_negative() -> None:
    points = torch.tensor([[[0, 0], [PADDING] * 2], [[0, 1], [1, 0]], [[PADDING] * 2] * 2])
    assert available(points).tolist() == [[True, False], [True, True], [False, False]]
    assert num_points(points).tolist() == [1, 2, 0]
    assert is_over(points).tolist() == [True, False, True]
    assert torch.equal(reduce(points), points)


def test_illegal_moves_and_ended_games_are_left_alone() -> None:
    game = [[0, 3, 1], [2, 0, 1]]
    points = torch.tensor([game, game, game, game, [[5, 5, 5], [PADDING] * 3]])
    coords = torch.tensor([[1, 1, 0]] * 5)
    moved = shift(points, coords, torch.tensor([0, 2, -1, 3, 0]))
    assert moved[0].tolist() == [[3, 3, 1], [2, 0, 1]]
    assert torch.equal(moved[1:], points[1:])


@given(moves())
def test_translation_and_scaling_do_not_change_the_game(move: tuple[Tensor, Tensor, Tensor]) -> None:
    points, coords, axis = move
    start = reposition(points)
    least = torch.stack([rows[rows[:, 0] >= 0].amin(0) if len(rows[rows[:, 0] >= 0]) else rows[0] for rows in points])
    present = available(points)[..., None]
    assert torch.equal(start, torch.where(present, points - least[:, None], PADDING))
    after, after_start = (reduce(shift(each, coords, axis)) for each in (points, start))
    assert torch.equal(reposition(after), reposition(after_start))
    scaled = torch.where(present, 7 * points, PADDING)
    after_scaled = reduce(shift(scaled, coords, axis))
    assert torch.equal(after_scaled, torch.where(available(after)[..., None], 7 * after, PADDING))


@given(positions(max_value=2**53))
def test_rescaling_rounds_each_ratio_once(points: Tensor) -> None:
    """float64 gives the float nearest to the true ratio, whatever the int; float32 stays float32."""
    games = [scalar.rows_of(rows) for rows in points.tolist()]
    for scaled, game in zip(rescale(points).tolist(), games, strict=True):
        expected = scalar.rescale(game) if scalar.left(game) else game
        assert scaled == [[-1.0] * points.shape[-1] if p is None else [float(x) for x in p] for p in expected]
    assert rescale(points.float()).dtype == torch.float32


def test_rescaling_by_hand() -> None:
    points = torch.tensor([[[1, 4], [2, 0]], [[0, 0], [PADDING] * 2], [[PADDING] * 2] * 2])
    assert rescale(points).tolist() == [[[0.25, 1], [0.5, 0]], [[0, 0], [-1, -1]], [[-1, -1], [-1, -1]]]


def test_what_is_exact() -> None:
    """int64 where float64 is not; a rescaled position has lost what it rounded."""
    big = 2**60
    points = torch.tensor([[[big, 1, 3], [0, big + 1, 2]]])
    moved = shift(points, torch.tensor([[1, 1, 1]]), torch.tensor([2]))
    assert moved.tolist() == [[[big, 1, big + 4], [0, big + 1, big + 3]]]
    assert torch.equal(reduce(moved), moved)
    floats = shift(points.double(), torch.tensor([[1, 1, 1]]), torch.tensor([2]))
    assert [[Fraction(x) for x in p] for p in floats[0].tolist()] != moved[0].tolist()
    low, high = 2**53 - 1, 2**53
    close = torch.tensor([[[high, low - 1, 0], [high, low - 2, 1]]])
    assert num_points(reduce(rescale(close))).tolist() == [2]
    assert num_points(reduce(rescale(close).float())).tolist() == [1]


@given(positions())
def test_canonical_order_is_pythons(points: Tensor) -> None:
    assert canonical(points).tolist() == [sorted(rows, reverse=True) for rows in points.tolist()]


def test_canonical_order_of_many_points_that_tie() -> None:
    points = random_points(stream_seeds(0, 5), 200, 3, 2)
    assert canonical(points).tolist() == [sorted(rows, reverse=True) for rows in points.tolist()]


@given(positions())
def test_trimming_drops_only_padding(points: Tensor) -> None:
    trimmed = trim(points)
    assert torch.equal(trimmed, points[:, : trimmed.shape[1]])
    assert not available(points)[:, trimmed.shape[1] :].any()
    assert trimmed.shape[1] <= 2 or available(trimmed)[:, -1].any()
    assert len(trim(points[:0])) == 0


def test_subsets_by_number() -> None:
    assert subsets(3).long().tolist() == [[1, 1, 0], [1, 0, 1], [0, 1, 1], [1, 1, 1]]
    assert len(subsets(4)) == 11 and subsets(4)[-1].all()
    for dimension in range(2, 8):
        table = scalar.subsets(dimension)
        assert len(table) == 2**dimension - dimension - 1
        assert [tuple(row.nonzero()[:, 0].tolist()) for row in subsets(dimension)] == table
        codes = [sum(2**c for c in subset) for subset in table]
        assert [code - (code.bit_length() - 1) - 2 for code in codes] == [*range(len(table))]
        ids = torch.arange(len(table)).flip(0)
        assert torch.equal(action_of(subset_of(ids, dimension)), ids)
        assert torch.equal(action_of(subset_of(ids, dimension).long()), ids)


@pytest.mark.parametrize("action", [-1, 4, 99])
def test_numbers_of_no_subset_are_refused(action: int) -> None:
    with pytest.raises(ValueError, match=f"host action {action}: must be >= 0 and < 4 in dimension 3"):
        subset_of(torch.tensor([0, action, 3]), 3)


@pytest.mark.parametrize("coords", [[0, 0, 0], [0, 1, 0]])
def test_subsets_of_less_than_two_are_refused(coords: list[int]) -> None:
    with pytest.raises(ValueError, match="at least two"):
        action_of(torch.tensor([[1, 1, 0], coords]))


def test_random_points_are_uniform_and_their_own() -> None:
    points = random_points(stream_seeds(0, 3000), 5, 2, 3)
    assert points.shape == (3000, 5, 2)
    for place in points.flatten(1).T:
        assert (place.bincount(minlength=4) - 750).abs().max() < 120  # 5 standard deviations
    pairs = (4 * points[:, 0, 0] + points[:, 4, 1]).bincount(minlength=16)
    assert len(pairs) == 16 and (pairs - 187.5).abs().max() < 70


@pytest.mark.parametrize(("rows", "dimension", "max_value"), [(2, 2, 1), (20, 3, 20), (6, 5, 2)])
def test_starts_have_a_move_to_make(rows: int, dimension: int, max_value: int) -> None:
    points = random_starts(stream_seeds(1, 500), rows, dimension, max_value)
    assert points.shape == (500, rows, dimension) and points.dtype == torch.int64
    assert not is_over(points).any()
    assert torch.equal(reduce(points), points)
    assert (points.max(), points.min()) == (max_value, PADDING if rows > 2 else 0)


def test_a_start_does_not_depend_on_the_others() -> None:
    seeds = stream_seeds(2, 400)
    points = random_starts(seeds, 2, 2, 2)  # most are drawn more than once
    some = torch.tensor([7, 3, 399])
    assert torch.equal(random_starts(seeds[some], 2, 2, 2), points[some])
    assert len(random_starts(seeds[:0], 2, 2, 2)) == 0
    assert len(points.flatten(1).unique(dim=0)) > 3
