"""Vertices of Newton polyhedra against a search over exact solutions in plain Python, and by hand."""

from random import Random

import pytest
import scalar_points as scalar
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from point_worlds import tensor_of

from icrl.extensions.point_game.fixed_players import AGENTS, HOSTS
from icrl.extensions.point_game.newton import reduce_to_hull
from icrl.extensions.point_game.rollout import PointGame, PointGameOptions, match, play
from icrl.extensions.point_game.rules import available, is_over, random_starts, reduce
from icrl.randomness import stream_seeds

OPTIONS = {"max_value": 9, "max_episode_steps": 8, "reposition": False, "reduction": "hull"}


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 4), st.sampled_from([3, 6, 200, 2**20, 2**53]))
def test_any_position_equals_plain_python(seed: int, dimension: int, largest: int) -> None:
    """Small numbers have many ties, points on edges and equal points; large ones exceed 64 bits in the tableau."""
    random = Random(seed)
    row = lambda: random.choice([None, *[tuple(random.randint(0, largest) for _ in range(dimension))] * 9])  # noqa: E731
    games = [[row() for _ in range(7)] for _ in range(4)]
    points = tensor_of(games, dimension)
    before = points.clone()
    assert torch.equal(reduce_to_hull(points), tensor_of([scalar.hull(game) for game in games], dimension))
    assert torch.equal(points, before)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int64])
def test_batches_of_any_sizes_equal_games_alone(dtype: torch.dtype) -> None:
    points = random_starts(stream_seeds(3, 300), 12, 3, 20).to(dtype)
    whole = reduce_to_hull(points)
    assert torch.equal(whole, torch.cat([reduce_to_hull(one) for one in points.split(1)]))
    assert whole.dtype == dtype and torch.equal(reduce_to_hull(whole), whole)
    left, dominant = available(whole), available(reduce(points))
    assert (left <= dominant).all() and (left.sum(1) < dominant.sum(1)).any()


def test_a_move_keeps_no_point_inside_the_hull_and_the_host_wins_sooner() -> None:
    """The points that dominance alone leaves can prolong a game."""
    game = PointGame(PointGameOptions(dimension=3, max_num_points=8, **OPTIONS))
    host, agent = HOSTS["random_pair"], AGENTS["random"]
    rollout, _ = play(game, host, agent, game.ask(host, game.reset(stream_seeds(0, 40))), 20)
    after = rollout.next_points.flatten(0, 1)
    assert torch.equal(reduce_to_hull(after), after) and torch.equal(is_over(after), rollout.terminated.flatten())
    plain = PointGame(PointGameOptions(dimension=3, max_num_points=8, **OPTIONS | {"reduction": "dominance"}))
    hull, dominance = (match(one, HOSTS["zeillinger"], AGENTS["last"], 300, 50, 0) for one in (game, plain))
    assert hull.finished.all() and hull.lengths.sum() < dominance.lengths.sum()
