"""Many games side by side against one game at a time."""

from dataclasses import asdict
from typing import Any

import pytest
import scalar_points as scalar
import torch
from torch import Tensor

from icrl.point_game.fixed_players import AGENTS, HOSTS, all_coordinates, first_agent, random_agent, zeillinger
from icrl.point_game.rollout import (
    MAX_COORDINATE,
    PointGame,
    PointGameOptions,
    PointRollout,
    PointState,
    Turn,
    host_reward,
    play,
)
from icrl.point_game.rules import PADDING, canonical, is_over, reduce, reposition, shift, subset_of
from icrl.randomness import stream_seeds

SEEDS = stream_seeds(0, 50)
OPTIONS: dict[str, Any] = {"dimension": 3, "max_num_points": 8, "max_value": 9, "max_episode_steps": 6}
PAIRS = [("random_pair", "random"), ("zeillinger", "last"), ("weak_spivakovsky", "first"), ("random_subset", "last")]


def game(**options: Any) -> PointGame:
    return PointGame(PointGameOptions(**{**OPTIONS, "reposition": False, **options}))


def played(host: str, agent: str, seeds: Tensor = SEEDS, steps: int = 40, **options: Any) -> PointRollout:
    rules = game(**options)
    return play(rules, HOSTS[host], AGENTS[agent], rules.ask(HOSTS[host], rules.reset(seeds)), steps)[0]


def at(*points: list[list[int]], **options: Any) -> tuple[PointGame, PointState]:
    """Games that stand at the given positions."""
    zero = torch.zeros(len(points), dtype=torch.int64)
    return game(**options), PointState(torch.tensor(points), stream_seeds(1, len(points)), zero, zero)


@pytest.mark.parametrize(("host", "agent"), PAIRS)
def test_a_record_replays_in_plain_python(host: str, agent: str) -> None:
    """Every row of every stream: the move, how it ended, the clock, the number of the game and where it went on."""
    rollout = played(host, agent)
    assert rollout.points.shape == (40, 50, 8, 3) and rollout.subset.shape == (40, 50)
    table, ends = scalar.subsets(3), {(False, False): 0, (True, False): 0, (False, True): 0, (True, True): 0}
    for stream in range(50):
        columns = [column[:, stream].tolist() for column in rollout]
        episode = timestep = 0
        for time, row in enumerate(zip(*columns, strict=True)):
            points, subset, axis, next_points, next_subset, terminated, truncated, *clock = row
            assert clock == [episode, timestep]
            assert axis in table[subset]
            after = scalar.reduce(scalar.shift(scalar.rows_of(points), table[subset], axis))
            assert scalar.rows_of(next_points) == after
            assert terminated == (len(scalar.left(after)) < 2)
            assert truncated == (timestep == 5)
            ends[terminated, truncated] += 1
            timestep += 1
            if terminated or truncated:
                episode, timestep = episode + 1, 0
            elif time < 39:
                assert rollout.points[time + 1, stream].tolist() == next_points
                assert rollout.subset[time + 1, stream] == next_subset
    assert ends[False, False] > 0 and ends[True, False] > 100 and (host == "zeillinger" or ends[False, True] > 10)


def test_next_subset_is_what_the_host_would_have_played() -> None:
    rollout = played("zeillinger", "first", steps=20, max_episode_steps=2)
    assert (rollout.truncated & ~rollout.terminated).sum() > 50
    asked = zeillinger(rollout.next_points.flatten(0, 1), torch.zeros(20 * 50)).view(20, 50)
    going = ~rollout.terminated
    assert torch.equal(rollout.next_subset[going], asked[going])
    assert torch.equal(rollout.subset, zeillinger(rollout.points.flatten(0, 1), torch.zeros(1000)).view(20, 50))


@pytest.mark.parametrize(("host", "agent"), PAIRS)
def test_every_game_begins_anew_with_something_to_do(host: str, agent: str) -> None:
    rollout = played(host, agent, max_num_points=2, max_value=2, dimension=2)
    first = rollout.points[rollout.timestep == 0]
    assert not is_over(rollout.points.flatten(0, 1)).any()
    assert torch.equal(first, canonical(reduce(first)))
    assert len(first.flatten(1).unique(dim=0)) == 9  # pairs of points in 3 x 3 of which neither is below the other


@pytest.mark.parametrize(("host", "agent"), PAIRS)
def test_a_stream_does_not_depend_on_the_others(host: str, agent: str) -> None:
    rollout, some = played(host, agent), torch.tensor([49, 7, 20])
    for field, alone in zip(rollout, played(host, agent, SEEDS[some]), strict=True):
        assert torch.equal(field[:, some], alone)
    for field, alone in zip(rollout, played(host, agent, SEEDS[:1]), strict=True):
        assert torch.equal(field[:, :1], alone)


def test_streams_and_games_have_luck_of_their_own() -> None:
    rollout = played("random_pair", "random", stream_seeds(3, 2000), steps=30)
    assert len(rollout.points[0].flatten(1).unique(dim=0)) > 1990
    for column in (rollout.subset, rollout.axis):
        for rows in (column[0], column[:, 0:40].flatten()):
            shares = rows.bincount(minlength=3) / len(rows)
            assert (shares - 1 / 3).abs().max() < 0.07
    rank = subset_of(rollout.subset[0], 3).cumsum(1).gather(1, rollout.axis[0][:, None])[:, 0] - 1
    both = (2 * rollout.subset[0] + rank).bincount(minlength=6) / 2000
    assert (both - 1 / 6).abs().max() < 0.04  # the agent's luck tells nothing of the host's


@pytest.mark.parametrize(("host", "agent"), PAIRS)
def test_two_rollouts_equal_one_of_twice_the_length(host: str, agent: str) -> None:
    rules = game()
    turn = rules.ask(HOSTS[host], rules.reset(SEEDS))
    parts = []
    for _ in range(2):
        part, turn = play(rules, HOSTS[host], AGENTS[agent], turn, 20)
        parts.append(part)
    for whole, *halves in zip(played(host, agent), *parts, strict=True):
        assert torch.equal(whole, torch.cat(halves))


@pytest.mark.parametrize("dimension", [2, 4])
def test_repositioned_games_are_the_same(dimension: int) -> None:
    """Same starts up to position, same moves, same ends; only smaller numbers."""
    for host in ("random_subset", "zeillinger", "weak_spivakovsky"):
        plain, small = (
            played(host, "random", dimension=dimension, max_episode_steps=20, reposition=reposition)
            for reposition in (False, True)
        )
        for name in ("subset", "axis", "terminated", "truncated", "episode", "timestep"):
            assert torch.equal(getattr(plain, name), getattr(small, name)), name
        for points, expected in ((plain.points, small.points), (plain.next_points, small.next_points)):
            assert torch.equal(reposition(points.flatten(0, 1)), reposition(expected.flatten(0, 1)))
        going = ~small.terminated.flatten()
        moved = small.next_points.flatten(0, 1)[going]
        assert torch.equal(moved, reposition(moved))
        assert small.next_points.max() < plain.next_points.max()


@pytest.mark.parametrize("top", [limit // 3 + more for limit in (2**7, 2**15, 2**31) for more in (-1, 0, 1)])
def test_moves_do_not_wrap_around(top: int) -> None:
    """Around the limits of what is computed in fewer bits."""
    for reposition_ in (False, True):
        rules, state = at([[top, top, top], [top - 1, 0, 3 * top]], [[0, 1, 2], [1, 0, 5]], reposition=reposition_)
        _, ends = rules.step(state, torch.tensor([3, 3]), torch.tensor([1, 1]))
        expected = [[[top, 3 * top, top], [top - 1, 4 * top - 1, 3 * top]], [[0, 3, 2], [1, 6, 5]]]
        assert ends.points.dtype == torch.int64
        assert torch.equal(reposition(reduce(torch.tensor(expected))), reposition(ends.points))
        assert reposition_ or torch.equal(reduce(torch.tensor(expected)), ends.points)
        assert not ends.truncated.any()


def test_an_answer_that_is_not_in_the_subset_loses() -> None:
    rules, state = at(*[[[0, 2, 3], [1, 1, 4]]] * 3)
    after, ends = rules.step(state, torch.tensor([0, 0, 0]), torch.tensor([2, 0, 3]))
    assert ends.terminated.tolist() == [True, False, True]
    assert ends.points.tolist() == [[[0, 2, 3], [1, 1, 4]], [[2, 2, 3], [2, 1, 4]], [[0, 2, 3], [1, 1, 4]]]
    assert host_reward(ends.terminated).tolist() == [1, 0, 1]
    assert after.timestep.tolist() == [1, 1, 1]
    with pytest.raises(ValueError, match="host action 4"):
        rules.step(state, torch.tensor([0, 4, 0]), torch.tensor([0, 0, 0]))


def test_clock_and_end_are_told_apart() -> None:
    """Over at the last step: both, and nothing is left to bootstrap from."""
    rules, state = at([[0, 2], [1, 1]], [[0, 9], [1, 1]], max_episode_steps=1, dimension=2)
    _, ends = rules.step(state, torch.tensor([0, 0]), torch.tensor([0, 1]))
    assert ends.points.tolist() == [[[PADDING, PADDING], [2, 1]], [[0, 9], [1, 2]]]
    assert (ends.terminated.tolist(), ends.truncated.tolist()) == ([True, False], [True, True])
    rules, state = at([[0, 2], [1, 1]], [[0, 9], [1, 1]], max_episode_steps=2, dimension=2)
    _, ends = rules.step(state, torch.tensor([0, 0]), torch.tensor([0, 1]))
    assert (ends.terminated.tolist(), ends.truncated.tolist()) == ([True, False], [False, False])


def test_a_game_of_large_numbers_is_truncated_while_they_are_exact() -> None:
    top = MAX_COORDINATE
    rules, state = at([[top, 0, 1], [0, top, 0]], [[top - 1, 0, 1], [0, top, 0]], [[top, top, top], [0, 1, top]])
    _, ends = rules.step(state, torch.tensor([3, 3, 3]), torch.tensor([2, 2, 2]))
    assert ends.truncated.tolist() == [True, False, True]
    assert ends.points[0].tolist() == [[top, 0, top + 1], [0, top, top]]
    assert ends.points[1].tolist() == [[top - 1, 0, top], [0, top, top]]
    assert ends.points[2].tolist() == [[PADDING] * 3, [0, 1, top + 1]]
    stalled = played("all_coordinates", "random", stream_seeds(4, 200), 60, max_episode_steps=1000, dimension=5)
    assert stalled.next_points.max() <= 5 * top
    assert (stalled.next_points.amax((2, 3)) > top).equal(stalled.truncated)


def test_reset_and_next_game() -> None:
    rules = game()
    state = rules.reset(SEEDS)
    where = torch.arange(50) % 2 == 0
    later = rules.next_episode(state._replace(timestep=state.timestep + 3), where)
    assert torch.equal(later.episode, where.long())
    assert later.timestep.tolist() == [0 if each else 3 for each in where]
    assert torch.equal(later.points[~where], state.points[~where])
    assert (later.points[where] != state.points[where]).flatten(1).any(1).all()
    assert torch.equal(later.points[where], rules.start(SEEDS[where], torch.ones(25, dtype=torch.int64)))
    none = torch.zeros(50, dtype=torch.bool)
    assert torch.equal(rules.next_episode(state, none).points, state.points)
    turn = Turn(state, torch.zeros_like(SEEDS))
    assert rules.next_turn(HOSTS["zeillinger"], turn, none) is turn


def test_players_see_exact_positions_and_may_be_any_function() -> None:
    """A host and an agent of one's own, and nothing they are handed changes under their hands."""
    seen: list[tuple[Tensor, Tensor]] = []

    def host(points: Tensor, noise: Tensor) -> Tensor:
        seen.append((points, points.clone()))
        assert points.dtype == torch.int64 and noise.dtype == torch.float32
        return all_coordinates(points, noise)

    def agent(points: Tensor, coords: Tensor, noise: Tensor) -> Tensor:
        assert coords.dtype == torch.bool and coords.all()
        return random_agent(points, coords, noise)

    rules = game()
    rollout, _ = play(rules, host, agent, rules.ask(host, rules.reset(SEEDS)), 10)
    assert all(torch.equal(points, before) for points, before in seen)
    assert (rollout.subset == 3).all() and not rollout.points.requires_grad
    moved = shift(rollout.points[3], subset_of(rollout.subset[3], 3), rollout.axis[3])
    assert torch.equal(reduce(moved), rollout.next_points[3])
    rollout, _ = play(rules, host, first_agent, rules.ask(host, rules.reset(SEEDS)), 3)
    assert (rollout.axis == 0).all()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("dimension", 1),
        ("dimension", 17),
        ("max_num_points", 1),
        ("max_value", 0),
        ("max_value", 2**20 + 1),
        ("max_episode_steps", 0),
        ("dimension", 2.5),
        ("max_num_points", "3"),
        ("max_value", True),
    ],
)
def test_options_out_of_range_are_refused(name: str, value: Any) -> None:
    good = asdict(game().options)
    with pytest.raises(ValueError, match=f"{name}={value!r}: must be an int >= "):
        PointGameOptions(**{**good, name: value})
    with pytest.raises(ValueError, match="reposition='no': must be True or False"):
        PointGameOptions(**{**good, "reposition": "no"})
