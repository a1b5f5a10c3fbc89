"""Many games side by side against one game at a time; matches against plain Python, and rho by hand."""

import json
from dataclasses import replace
from random import Random

import pytest
import scalar_points as scalar
import torch
from torch import Tensor

from icrl.extensions.point_game.fixed_players import AGENTS, HOSTS, zeillinger
from icrl.extensions.point_game.rollout import (
    MAX_COORDINATE,
    PointGame,
    PointGameOptions,
    PointRollout,
    PointState,
    match,
    measure,
    players_of,
    rho_over_runs,
)
from icrl.extensions.point_game.rollout import play as play_moves
from icrl.extensions.point_game.rules import PADDING, canonical, is_over, reduce
from icrl.randomness import stream_seeds

SEEDS = stream_seeds(0, 50)
OPTIONS = PointGameOptions(dimension=3, max_num_points=8, max_value=9, max_episode_steps=6, reposition=False)
GAME = PointGame(replace(OPTIONS, max_episode_steps=3))
PAIRS = [("random_pair", "random"), ("zeillinger", "last"), ("weak_spivakovsky", "first")]


def play(host: str, agent: str, seeds=SEEDS, steps: int = 40, **options) -> PointRollout:
    game = PointGame(replace(OPTIONS, **options))
    return play_moves(game, HOSTS[host], AGENTS[agent], game.ask(HOSTS[host], game.reset(seeds)), steps)[0]


def at(*points: list[list[int]], **options) -> tuple[PointGame, PointState]:
    """Games in the given positions."""
    zero = torch.zeros(len(points), dtype=torch.int64)
    state = PointState(torch.tensor(points), stream_seeds(1, len(points)), zero, zero, zero)
    return PointGame(replace(OPTIONS, **options)), state


@pytest.mark.parametrize(("host", "agent", "moved"), [(*pair, pair[0] == "zeillinger") for pair in PAIRS])
def test_a_record_replays_in_plain_python(host: str, agent: str, moved: bool) -> None:
    """Every row of every stream: the move, its end, the clock, the number of the game and the next position."""
    rollout = play(host, agent, reposition=moved)
    assert rollout.points.shape == (40, 50, 8, 3) and rollout.subset.shape == (40, 50)
    table, ends = scalar.subsets(3), {(False, False): 0, (True, False): 0, (False, True): 0, (True, True): 0}
    for stream in range(50):
        columns = [column[:, stream].tolist() for column in rollout]
        episode = timestep = 0
        for time, row in enumerate(zip(*columns, strict=True)):
            points, subset, axis, next_points, next_subset, terminated, truncated, *clock = row
            assert clock == [episode, timestep] and axis in table[subset]
            after = scalar.reduce(scalar.shift(scalar.rows_of(points), table[subset], axis))
            assert scalar.rows_of(next_points) == (scalar.reposition(after) if moved else after)
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
    assert ends[True, False] > 100 and ends[False, False] and ends[True, True]
    assert host == "zeillinger" or ends[False, True] > 10


@pytest.mark.parametrize(("host", "agent"), PAIRS[::2])
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


def test_a_game_of_large_numbers_is_truncated_while_they_are_exact() -> None:
    top = MAX_COORDINATE
    game, state = at([[top, 0, 1], [0, top, 0]], [[top - 1, 0, 1], [0, top, 0]], [[top] * 3, [0, 1, top]])
    after, over, late = game.step(state, torch.tensor([3, 3, 3]), torch.tensor([2, 2, 2]))
    assert after.points[0].tolist() == [[top, 0, top + 1], [0, top, top]]
    assert after.points[1].tolist() == [[top - 1, 0, top], [0, top, top]]
    assert after.points[2].tolist() == [[PADDING] * 3, [0, 1, top + 1]]
    assert (over.tolist(), late.tolist()) == ([False, False, True], [True, False, True])


# ---- matches


def result(finished: list[int], unfinished: list[int]):
    """Results of one pair of players: games by their number of moves."""
    return {"pair": {"finished_lengths": finished, "unfinished_lengths": unfinished}}


@pytest.mark.parametrize(("agent", "answer"), [("first", min), ("last", max)])
@pytest.mark.parametrize("max_moves", [1, 12])
def test_a_match_equals_single_games_in_plain_python(agent: str, answer, max_moves: int) -> None:
    """Lengths and every action of 60 games, for any clock of the game; players get unfinished games alone."""
    positions: list[Tensor] = []

    def host(points, noise):
        positions.append(points)
        return zeillinger(points, noise)

    played = match(GAME, host, AGENTS[agent], 60, max_moves, seed=3)
    asked: list[scalar.Subset] = []

    def plain(points: list[scalar.Point], random: Random) -> scalar.Subset:
        asked.append(scalar.zeillinger(points, random))
        return asked[-1]

    games = [scalar.rows_of(rows) for rows in positions[0].tolist()]
    lengths = [scalar.play(game, plain, lambda subset, _: answer(subset), Random(0), max_moves) for game in games]
    assert played.lengths.tolist() == lengths
    assert played.lengths[~played.finished].eq(max_moves).all()
    assert played.finished.sum() > 0 and (max_moves == 12 or played.finished.sum() < 60)
    assert played.host_actions.tolist() == [asked.count(subset) for subset in scalar.subsets(3)]
    assert played.agent_actions.tolist() == [[*map(answer, asked)].count(axis) for axis in range(3)]
    assert sum(map(len, positions)) == sum(lengths) and not any(is_over(points).any() for points in positions)


def test_an_end_at_the_last_move_is_finished_and_one_by_too_large_numbers_is_not() -> None:
    """All moves of a game whose numbers become too large count, and nobody has won."""
    whole, cut = (match(GAME, zeillinger, AGENTS["first"], 200, moves, seed=0) for moves in (50, 2))
    assert torch.equal(cut.lengths, whole.lengths.clamp(max=2))
    assert torch.equal(cut.finished, whole.finished & (whole.lengths <= 2))
    every, answer = HOSTS["all_coordinates"], lambda _, coords, noise: 2 * (noise < 0.5).long()
    large = match(GAME, every, answer, 200, 1000, seed=0)
    assert 0 < (~large.finished).sum() < 200
    assert large.lengths[~large.finished].min() > 20 and large.lengths.max() < 200


def test_measure_reports_the_matches() -> None:
    pairs = {"a_vs_b": (zeillinger, AGENTS["random"]), "c_vs_b": (HOSTS["all_coordinates"], AGENTS["first"])}
    results = measure(GAME, pairs, 150, 20, seed=6)
    assert json.loads(json.dumps(results)) == results and players_of(results) == (["a", "c"], ["b"])
    for name, players in pairs.items():
        played, found = match(GAME, *players, 150, 20, seed=6), results[name]
        outcomes = [*zip(played.lengths.tolist(), played.finished.tolist(), strict=True)]
        moves, wins = (sum(column) for column in zip(*outcomes, strict=True))
        assert found["rho"]["value"] == pytest.approx(wins / moves)
        assert found["rho"]["low"] < found["rho"]["value"] < found["rho"]["high"]
        assert (found["mean_length"], found["fraction_finished"]) == pytest.approx((moves / 150, wins / 150))
        for key, won in (("finished_lengths", True), ("unfinished_lengths", False)):
            assert found[key] == [outcomes.count((move, won)) for move in range(1, 21)]
    assert results["a_vs_b"]["rho"]["low"] > results["c_vs_b"]["rho"]["high"]


def test_rho_of_one_run_by_hand_and_of_several() -> None:
    """Runs that agree leave the chance of the games; runs that differ widen the interval, within [0, 1]."""
    for finished, unfinished, value in (([1, 0, 1, 1], [0, 0, 0, 1], 3 / 12), ([0], [2], 0), ([3], [0], 1)):
        assert rho_over_runs([result(finished, unfinished)], 0)["pair"]["value"] == value
    run, other = result([30, 5, 0], [0, 0, 5]), result([20, 10, 5], [0, 0, 5])
    alike, apart = (rho_over_runs(runs, seed=0)["pair"] for runs in ([run, run], [run, other]))
    assert apart["value"] == pytest.approx((35 + 35) / (55 + 70))
    assert alike["high"] - alike["low"] < (apart["high"] - apart["low"]) / 2
    extreme = rho_over_runs([result([0, 0], [0, 40]), result([40, 0], [0, 0])], 0)["pair"]
    assert (extreme["low"], extreme["high"]) == (0, 1)
    with pytest.raises(ValueError, match="same shape"):
        rho_over_runs([result([1], [0]), result([2], [0])], 0)
