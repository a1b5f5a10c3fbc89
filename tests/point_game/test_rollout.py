"""Many games side by side against one game at a time."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest
import scalar_points as scalar
import torch
from torch import Tensor

from icrl.point_game.fixed_players import AGENTS, HOSTS
from icrl.point_game.rollout import MAX_COORDINATE, PointGame, PointGameOptions, PointRollout, PointState
from icrl.point_game.rollout import play as play_moves
from icrl.point_game.rules import PADDING, canonical, is_over, reduce, reposition, subset_of
from icrl.randomness import stream_seeds

SEEDS = stream_seeds(0, 50)
OPTIONS = PointGameOptions(dimension=3, max_num_points=8, max_value=9, max_episode_steps=6, reposition=False)
PAIRS = [("random_pair", "random"), ("zeillinger", "last"), ("weak_spivakovsky", "first")]
TOP = MAX_COORDINATE


def play(host: str, agent: str, seeds: Tensor = SEEDS, steps: int = 40, **options: Any) -> PointRollout:
    game = PointGame(replace(OPTIONS, **options))
    return play_moves(game, HOSTS[host], AGENTS[agent], game.ask(HOSTS[host], game.reset(seeds)), steps)[0]


def at(*points: list[list[int]], **options: Any) -> tuple[PointGame, PointState]:
    """Games in the given positions."""
    zero = torch.zeros(len(points), dtype=torch.int64)
    state = PointState(torch.tensor(points), stream_seeds(1, len(points)), zero, zero, zero)
    return PointGame(replace(OPTIONS, **options)), state


@pytest.mark.parametrize(("host", "agent"), PAIRS)
def test_a_record_replays_in_plain_python(host: str, agent: str) -> None:
    """Every row of every stream: the move, its end, the clock, the number of the game and the next position."""
    rollout = play(host, agent)
    assert rollout.points.shape == (40, 50, 8, 3) and rollout.subset.shape == (40, 50)
    table, ends = scalar.subsets(3), {(False, False): 0, (True, False): 0, (False, True): 0, (True, True): 0}
    for stream in range(50):
        columns = [column[:, stream].tolist() for column in rollout]
        episode = timestep = 0
        for time, row in enumerate(zip(*columns, strict=True)):
            points, subset, axis, next_points, next_subset, terminated, truncated, *clock = row
            assert clock == [episode, timestep] and axis in table[subset]
            after = scalar.reduce(scalar.shift(scalar.rows_of(points), table[subset], axis))
            assert scalar.rows_of(next_points) == after
            assert (terminated, truncated) == (len(scalar.left(after)) < 2, timestep == 5)
            if host == "zeillinger" and not terminated:
                assert table[next_subset] == scalar.zeillinger(scalar.left(after), Random(0))
            ends[terminated, truncated] += 1
            timestep += 1
            if terminated or truncated:
                episode, timestep = episode + 1, 0
            elif time < 39:
                assert rollout.points[time + 1, stream].tolist() == next_points
                assert rollout.subset[time + 1, stream] == next_subset
    assert ends[False, False] > 0 and ends[True, False] > 100 and (host == "zeillinger" or ends[False, True] > 10)


@pytest.mark.parametrize(("host", "agent"), PAIRS)
def test_streams_and_lengths_of_rollouts_do_not_matter(host: str, agent: str) -> None:
    """A stream does not depend on the others; two rollouts equal one of twice the length; every start has a move."""
    rollout, some = play(host, agent), torch.tensor([49, 7, 20])
    game, players = PointGame(OPTIONS), (HOSTS[host], AGENTS[agent])
    first, state = play_moves(game, *players, game.ask(HOSTS[host], game.reset(SEEDS)), 20)
    second, _ = play_moves(game, *players, state, 20)
    columns = zip(rollout, play(host, agent, SEEDS[some]), play(host, agent, SEEDS[:1]), first, second, strict=True)
    for column, three, one, *halves in columns:
        assert torch.equal(column[:, some], three) and torch.equal(column[:, :1], one)
        assert torch.equal(column, torch.cat(halves))
    start = rollout.points[rollout.timestep == 0]
    assert not is_over(rollout.points.flatten(0, 1)).any() and torch.equal(start, canonical(reduce(start)))


def test_streams_and_players_have_random_numbers_of_their_own() -> None:
    rollout = play("random_pair", "random", stream_seeds(3, 2000), steps=30)
    assert len(rollout.points[0].flatten(1).unique(dim=0)) > 1990
    for column in (rollout.subset, rollout.axis):
        for rows in (column[0], column[:, 0:40].flatten()):
            assert (rows.bincount(minlength=3) / len(rows) - 1 / 3).abs().max() < 0.07
    rank = subset_of(rollout.subset[0], 3).cumsum(1).gather(1, rollout.axis[0][:, None])[:, 0] - 1
    both = (2 * rollout.subset[0] + rank).bincount(minlength=6) / 2000
    assert (both - 1 / 6).abs().max() < 0.04  # the agent's noise is independent of the host's


@pytest.mark.parametrize("host", ["random_subset", "zeillinger", "weak_spivakovsky"])
def test_repositioned_games_are_the_same_in_smaller_numbers(host: str) -> None:
    plain, small = (play(host, "last", dimension=4, max_episode_steps=20, reposition=moved) for moved in (False, True))
    for name, expected, found in zip(plain._fields, plain, small, strict=True):
        if name.endswith("points"):
            assert torch.equal(reposition(expected.flatten(0, 1)), reposition(found.flatten(0, 1)))
        elif name != "next_subset":  # in a game that is over it is any
            assert torch.equal(expected, found), name
    assert small.next_points.max() < plain.next_points.max()


@pytest.mark.parametrize("top", [limit // 3 + more for limit in (2**7, 2**15, 2**31) for more in (-1, 0, 1)])
def test_moves_do_not_wrap_around(top: int) -> None:
    """Around the limits of the narrow dtypes."""
    expected = reduce(torch.tensor([[[top, 3 * top, top], [top - 1, 4 * top - 1, 3 * top]], [[0, 3, 2], [1, 6, 5]]]))
    for moved in (False, True):
        game, state = at([[top, top, top], [top - 1, 0, 3 * top]], [[0, 1, 2], [1, 0, 5]], reposition=moved)
        after, _, truncated = game.step(state, torch.tensor([3, 3]), torch.tensor([1, 1]))
        assert after.points.dtype == torch.int64 and not truncated.any()
        assert torch.equal(reposition(expected) if moved else expected, after.points)


@pytest.mark.parametrize(
    ("positions", "subset", "axis", "options", "points", "terminated", "truncated"),
    [
        # An answer outside the subset loses and leaves the position as it is.
        ([[[0, 2, 3], [1, 1, 4]]] * 3, [0] * 3, [2, 0, 3], {},
         [[[0, 2, 3], [1, 1, 4]], [[2, 2, 3], [2, 1, 4]], [[0, 2, 3], [1, 1, 4]]], [1, 0, 1], [0, 0, 0]),
        # The clock and the end of a game are separate, and may come together.
        ([[[0, 2], [1, 1]], [[0, 9], [1, 1]]], [0, 0], [0, 1], {"max_episode_steps": 1, "dimension": 2},
         [[[PADDING] * 2, [2, 1]], [[0, 9], [1, 2]]], [1, 0], [1, 1]),
        ([[[0, 2], [1, 1]], [[0, 9], [1, 1]]], [0, 0], [0, 1], {"max_episode_steps": 2, "dimension": 2},
         [[[PADDING] * 2, [2, 1]], [[0, 9], [1, 2]]], [1, 0], [0, 0]),
        # A game of large numbers is truncated while they are exact.
        ([[[TOP, 0, 1], [0, TOP, 0]], [[TOP - 1, 0, 1], [0, TOP, 0]], [[TOP, TOP, TOP], [0, 1, TOP]]], [3] * 3, [2] * 3,
         {}, [[[TOP, 0, TOP + 1], [0, TOP, TOP]], [[TOP - 1, 0, TOP], [0, TOP, TOP]],
              [[PADDING] * 3, [0, 1, TOP + 1]]], [0, 0, 1], [1, 0, 1]),
    ],
)  # fmt: skip
def test_a_step_by_hand(
    positions: list, subset: list, axis: list, options: dict, points: list, terminated: list, truncated: list
) -> None:
    game, state = at(*positions, **options)
    after, over, late = game.step(state, torch.tensor(subset), torch.tensor(axis))
    assert after.points.tolist() == points and after.timestep.eq(1).all()
    assert (over.tolist(), late.tolist()) == ([*map(bool, terminated)], [*map(bool, truncated)])
