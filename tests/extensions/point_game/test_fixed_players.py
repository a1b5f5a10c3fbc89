"""Fixed players of the polyhedra game against plain Python, and against every agent there can be."""

from random import Random

import pytest
import scalar_points as scalar
import torch

from icrl.extensions.point_game import rules
from icrl.extensions.point_game.fixed_players import AGENTS, HOSTS
from icrl.randomness import stream_seeds, uniform

NOISE = uniform(stream_seeds(9, 4096), 0)
HIGHEST = 1 - 2**-24  # the highest noise there is
DETERMINISTIC = {
    "zeillinger": lambda game: scalar.zeillinger(game, Random(0)),
    "zeillinger_lexicographic": lambda game: scalar.zeillinger_lexicographic(game, Random(0)),
    "weak_spivakovsky_first": lambda game: scalar.smallest_hitting_sets(game)[0],
    "spivakovsky": scalar.spivakovsky,
}


def starts(dimension: int, num_games: int = 100, rows: int = 8, max_value: int = 5):
    return rules.random_starts(stream_seeds(dimension, num_games), rows, dimension, max_value)


@pytest.mark.parametrize(("dimension", "rows", "max_value"), [(2, 9, 20), (3, 8, 3), (4, 8, 5), (5, 10, 9), (7, 4, 3)])
@pytest.mark.parametrize("host", DETERMINISTIC)
def test_hosts_equal_plain_python(host: str, dimension: int, rows: int, max_value: int) -> None:
    """On starts, where keys tie often, and on what agents make of them, where rows between points are gone and
    coordinates grow."""
    points, table = starts(dimension, 100, rows, max_value), scalar.subsets(dimension)
    for move in range(4):
        asked = HOSTS[host](points, NOISE[: len(points)])
        games = [scalar.left(scalar.rows_of(rows)) for rows in points.tolist()]
        assert [table[action] for action in asked.tolist()] == [*map(DETERMINISTIC[host], games)]
        if host.startswith("zeillinger"):  # and on positions rescaled by what floats hold exactly
            assert torch.equal(HOSTS[host](points / 8 * (points >= 0) - (points < 0).double(), NOISE), asked)
        agent, coords = [*AGENTS.values()][move % 3], rules.subset_of(asked, dimension)
        points = rules.reduce(rules.shift(points, coords, agent(points, coords, NOISE[: len(points)])))
        points = points[~rules.is_over(points)]


@pytest.mark.parametrize("dimension", [2, 3, 9])
def test_all_players_move_legally_in_every_position(dimension: int) -> None:
    """In games that are over too, for any other games in the batch, and with the lowest and the highest noise."""
    points, some = starts(dimension, 60), torch.tensor([50, 3, 25])
    points[20:40, 1:] = rules.PADDING
    points[40:] = rules.PADDING
    for noise in (NOISE[:60], torch.zeros(60), torch.full((60,), HIGHEST)):
        for host in HOSTS.values():
            action = host(points, noise)
            assert action.dtype == torch.int64 and action.shape == (60,)
            coords = rules.subset_of(action, dimension)
            assert torch.equal(host(points[some], noise[some]), action[some])
            assert torch.equal(host(points[45:46], noise[45:46]), action[45:46])
            for agent in AGENTS.values():
                assert coords.gather(1, agent(points, coords, noise)[:, None]).all()


def answered(points, host: str):
    """Every position after any answer to `host` on `points`, once and repositioned, without games that are over."""
    coords = rules.subset_of(HOSTS[host](points, NOISE[: len(points)]), points.shape[-1])
    game, axis = coords.nonzero().unbind(1)
    after = rules.canonical(rules.reposition(rules.reduce(rules.shift(points[game], coords[game], axis))))
    return rules.trim(after[~rules.is_over(after)].unique(dim=0))


@pytest.mark.parametrize(
    ("host", "dimension", "rows", "max_value", "games"),
    [
        *(("spivakovsky", *size) for size in ((2, 8, 12, 60), (3, 6, 8, 40), (4, 4, 4, 12), (5, 4, 2, 12))),
        *((host, 3, 5, 4, 20) for host in ("zeillinger", "zeillinger_lexicographic")),
    ],
)
def test_no_agent_makes_a_game_last_for_ever(host: str, dimension: int, rows: int, max_value: int, games: int) -> None:
    """For some k, no position can be reached in k moves."""
    points = starts(dimension, games, rows, max_value)
    for _ in range(200):
        points = answered(points, host)
        if not len(points):
            return
        assert len(points) < len(NOISE)
    pytest.fail(f"{len(points)} positions after 200 moves")
