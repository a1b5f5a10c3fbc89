"""Rules of the polyhedra game against plain Python, and the chance of starts."""

from random import Random

import pytest
import scalar_points as scalar
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from point_worlds import tensor_of
from torch import Tensor

from icrl.extensions.point_game import rules
from icrl.extensions.point_game.rules import PADDING
from icrl.randomness import stream_seeds

pytestmark = pytest.mark.quick


@st.composite
def moves(draw: st.DrawFn, max_value: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    """Positions `[B, N, n]` with many ties, equal points and removed rows, a subset for each game and a coordinate that
    may not be in it."""
    num_games, rows, dimension = draw(st.integers(1, 4)), draw(st.integers(1, 6)), draw(st.integers(2, 4))
    point = st.tuples(*[st.integers(0, max_value)] * dimension)
    row = st.one_of(point, point, point, st.just((PADDING,) * dimension))
    size = num_games * rows
    points = torch.tensor(draw(st.lists(row, min_size=size, max_size=size))).view(num_games, rows, dimension)
    subset, axis = (
        torch.tensor(draw(st.lists(st.integers(0, high), min_size=num_games, max_size=num_games)))
        for high in (len(rules.subsets(dimension)) - 1, dimension - 1)
    )
    return points, rules.subset_of(subset, dimension), axis


@settings(max_examples=60)
@given(moves())
def test_any_position_equals_plain_python(move) -> None:
    """Every function, on positions that may not be reduced, for any layout in memory and for float64; illegal answers
    are among the moves; none changes its input."""
    points, coords, axis = move
    dimension, before = points.shape[-1], points.clone()
    games = [scalar.rows_of(rows) for rows in points.tolist()]
    present = [scalar.left(game) for game in games]
    asked = [tuple(coord.nonzero()[:, 0].tolist()) for coord in coords]
    shifted = [scalar.shift(*each) for each in zip(games, asked, axis.tolist(), strict=True)]
    for same in (points, points.permute(2, 1, 0).contiguous().permute(2, 1, 0), points.double()):
        assert rules.shift(same, coords, axis).tolist() == tensor_of(shifted, dimension).tolist()
        assert rules.reduce(same).tolist() == tensor_of([scalar.reduce(game) for game in games], dimension).tolist()
        assert rules.canonical(same).tolist() == [sorted(rows, reverse=True) for rows in points.tolist()]
    assert rules.available(points).sum(1).tolist() == [*map(len, present)]
    assert rules.is_over(points).tolist() == [len(left) <= 1 for left in present]
    moved = [scalar.reposition(game) if left else game for game, left in zip(games, present, strict=True)]
    assert torch.equal(rules.reposition(points), tensor_of(moved, dimension))
    trimmed = rules.trim(points)
    assert torch.equal(trimmed, points[:, : trimmed.shape[1]]) and len(rules.trim(points[:0])) == 0
    assert not rules.available(points)[:, trimmed.shape[1] :].any()
    assert trimmed.shape[1] <= 2 or rules.available(trimmed)[:, -1].any()
    assert torch.equal(points, before)


@pytest.mark.parametrize("top", [*(2**bits + more for bits in (7, 15, 31, 53) for more in (-3, -1, 0)), 2**62])
def test_numbers_of_any_size_equal_plain_python(top: int) -> None:
    """Around the limits of the narrow dtypes; floats too, while they are exact."""
    random = Random(top)
    row = lambda: random.choice([None, tuple(random.choices([0, 1, top - 1, top], k=3))])  # noqa: E731
    games = [[row() for _ in range(9)] for _ in range(60)]
    points, expected = tensor_of(games, 3), tensor_of([scalar.reduce(game) for game in games], 3)
    assert torch.equal(rules.reduce(points), expected)
    assert rules.canonical(points).tolist() == [sorted(rows, reverse=True) for rows in points.tolist()]
    alone = torch.tensor([[[PADDING] * 3, [top] * 3]])  # padding must stay above any point
    assert torch.equal(rules.reduce(alone), alone)
    if top <= 2**53:
        assert torch.equal(rules.reduce(points.double()), expected.double())
        assert torch.equal(rules.canonical(points.double()), rules.canonical(points).double())


def test_zero_has_no_sign() -> None:
    points = torch.tensor([[[-0.0, 1.0], [0.0, -0.0]]])
    assert rules.reduce(points).tolist() == [[[PADDING, PADDING], [0, 0]]]


@settings(max_examples=40)
@given(moves(max_value=2**53))
def test_rescaling_rounds_each_ratio_once(move) -> None:
    """float64 gives the float nearest to the true ratio; float32 stays float32."""
    points, *_ = move
    for scaled, rows in zip(rules.rescale(points).tolist(), points.tolist(), strict=True):
        game = scalar.rows_of(rows)
        expected = scalar.rescale(game) if scalar.left(game) else game
        assert scaled == [[-1.0] * points.shape[-1] if p is None else [float(x) for x in p] for p in expected]
    assert rules.rescale(points.float()).dtype == torch.float32


def test_subsets_by_number() -> None:
    assert rules.subsets(3).long().tolist() == [[1, 1, 0], [1, 0, 1], [0, 1, 1], [1, 1, 1]]
    for dimension in range(2, 8):
        table = scalar.subsets(dimension)
        assert [tuple(row.nonzero()[:, 0].tolist()) for row in rules.subsets(dimension)] == table
        assert torch.equal(rules.subset_of(torch.arange(len(table)), dimension), rules.subsets(dimension))
    for action in (-1, 4, 99):
        with pytest.raises(ValueError, match=f"host action {action}: must be >= 0 and < 4 in dimension 3"):
            rules.subset_of(torch.tensor([0, action, 3]), 3)


def test_more_games_than_are_reduced_in_one_pass_and_none() -> None:
    """Each pass has a dtype of its own. `test_world` compares starts with plain Python."""
    points = rules.random_points(stream_seeds(0, 3000), 5, 2, 3)
    large = points * torch.where(torch.arange(3000) % 999 == 3, 2**40, 1)[:, None, None]
    assert torch.equal(rules.reduce(large), torch.where(rules.reduce(points) < 0, PADDING, large))
    assert len(rules.random_starts(stream_seeds(0, 0), 5, 2, 3)) == 0
    assert not rules.is_over(rules.random_starts(stream_seeds(2, 400), 2, 2, 2)).any()
