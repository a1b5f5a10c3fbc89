"""Matches against plain Python, rho by hand, intervals against a bootstrap loop and the truth they should cover."""

import json
from random import Random
from typing import Any

import numpy as np
import pytest
import scalar_points as scalar
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from icrl.point_game.fixed_players import (
    AGENTS,
    HOSTS,
    all_coordinates,
    first_agent,
    random_agent,
    random_pair,
    zeillinger,
)
from icrl.point_game.matches import Match, match, measure, rho_over_runs
from icrl.point_game.rollout import PointGame, PointGameOptions
from icrl.point_game.rules import is_over, subset_of

OPTIONS = PointGameOptions(dimension=3, max_num_points=8, max_value=9, max_episode_steps=3, reposition=False)
GAME = PointGame(OPTIONS)
PAIRS = {"good": (zeillinger, random_agent), "bad": (all_coordinates, first_agent)}


def matched(lengths: list[int], finished: list[bool]) -> Match:
    nothing = torch.zeros(3, dtype=torch.int64)
    return Match(torch.tensor(lengths), torch.tensor(finished), nothing, nothing)


def result(finished: list[int], unfinished: list[int]) -> dict[str, Any]:
    return {"pair": {"finished_lengths": finished, "unfinished_lengths": unfinished}}


def rho(played: Match) -> float:
    counts = [
        played.lengths[games].bincount(minlength=101)[1:].tolist() for games in (played.finished, ~played.finished)
    ]
    return rho_over_runs([result(*counts)], 0.95, 100, 0)["pair"]["value"]


@pytest.mark.parametrize(
    ("host", "agent"), [("zeillinger", "first"), ("zeillinger", "last"), ("weak_spivakovsky", "last")]
)
@pytest.mark.parametrize("max_moves", [1, 12])
def test_equals_single_games_in_plain_python(host: str, agent: str, max_moves: int) -> None:
    """Lengths, ends and every action of 60 games, whatever the game's own clock says."""
    asked: list[int] = []
    starts: list[Tensor] = []

    def watched(points: Tensor, noise: Tensor) -> Tensor:
        starts.append(points)
        actions = HOSTS[host](points, noise)
        asked.extend(actions[~is_over(points)].tolist())
        return actions

    played = match(GAME, watched, AGENTS[agent], 60, max_moves, seed=3)
    if host == "zeillinger":
        games = [scalar.rows_of(rows) for rows in starts[0].tolist()]
        choose = (lambda subset, _: min(subset)) if agent == "first" else (lambda subset, _: max(subset))
        lengths = [scalar.play(game, scalar.zeillinger, choose, Random(0), max_moves) for game in games]
        assert played.lengths.tolist() == lengths
    assert played.lengths[~played.finished].eq(max_moves).all()
    assert played.finished.sum() > 0 and (max_moves == 12 or played.finished.sum() < 60)
    assert len(asked) == played.lengths.sum() == played.host_actions.sum() == played.agent_actions.sum()
    coords = subset_of(torch.tensor(asked), 3)
    answers = AGENTS[agent](coords, coords, torch.zeros(len(asked)))
    assert torch.equal(played.host_actions, torch.tensor(asked).bincount(minlength=4))
    assert torch.equal(played.agent_actions, answers.bincount(minlength=3))


def test_over_at_the_last_move_is_finished() -> None:
    lengths = match(GAME, zeillinger, first_agent, 200, 50, seed=0)
    for limit in (1, 2, 5):
        cut = match(GAME, zeillinger, first_agent, 200, limit, seed=0)
        assert torch.equal(cut.lengths, lengths.lengths.clamp(max=limit))
        assert torch.equal(cut.finished, lengths.finished & (lengths.lengths <= limit))


def test_a_game_depends_on_its_number_alone() -> None:
    many, few = (match(GAME, random_pair, random_agent, games, 20, seed=4) for games in (50, 20))
    assert torch.equal(many.lengths[:20], few.lengths) and torch.equal(many.finished[:20], few.finished)
    assert len(many.lengths.unique()) > 4
    assert not torch.equal(many.lengths, match(GAME, random_pair, random_agent, 50, 20, seed=5).lengths)


def test_no_gradients_and_no_moves_in_games_that_are_over() -> None:
    weight, sizes = torch.ones(1, requires_grad=True), []

    def host(points: Tensor, noise: Tensor) -> Tensor:
        assert not (points * weight).requires_grad
        assert not is_over(points[: len(noise)]).all()
        sizes.append(len(points))
        return zeillinger(points, noise)

    match(GAME, host, first_agent, 40, 30, seed=0)
    assert sizes[0] == 40 and sizes == sorted(sizes, reverse=True) and sizes[-1] < 10


def test_numbers_too_large_break_a_game_off() -> None:
    """Fewer moves than `max_moves`, all of them counted, and nobody has won."""
    played = match(GAME, all_coordinates, lambda _, coords, noise: 2 * (noise < 0.5).long(), 200, 1000, seed=0)
    assert 0 < (~played.finished).sum() < 200
    assert played.lengths[~played.finished].min() > 20 and played.lengths.max() < 200


def test_answers_outside_the_subset_lose() -> None:
    played = match(GAME, lambda points, _: torch.zeros(len(points)).long(), lambda *_: torch.tensor([2] * 9), 9, 5, 0)
    assert played.finished.all() and played.lengths.tolist() == [1] * 9
    assert played.agent_actions.tolist() == [0, 0, 9] and played.host_actions.tolist() == [9, 0, 0, 0]


@pytest.mark.parametrize(("games", "moves", "named"), [(0, 5, "num_games=0"), (5, 0, "max_episode_steps=0")])
def test_less_than_one_is_refused(games: int, moves: int, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        match(GAME, zeillinger, first_agent, games, moves, 0)


def test_rho_by_hand() -> None:
    assert rho(matched([1, 3, 10, 10], [True, True, False, True])) == 3 / 24
    assert rho(matched([10, 10], [False, False])) == 0
    assert rho(matched([1, 1, 1], [True] * 3)) == 1


@given(st.floats(0.05, 0.9))
def test_rho_is_games_per_move_of_one_game_after_another(chance: float) -> None:
    """Games that end with the same chance at each move: rho is that chance, wherever they are broken off."""
    rng = np.random.default_rng(0)
    natural = rng.geometric(chance, size=4000)
    for limit in (2, 100):
        lengths = natural.clip(max=limit)
        assert rho(matched(lengths.tolist(), (natural <= limit).tolist())) == pytest.approx(chance, rel=0.1)


def test_measure_says_what_the_matches_say() -> None:
    results = measure(GAME, PAIRS, 150, 20, seed=6, confidence=0.9, num_bootstrap=200)
    assert json.loads(json.dumps(results)) == results and list(results) == ["good", "bad"]
    for name, players in PAIRS.items():
        played, found = match(GAME, *players, 150, 20, seed=6), results[name]
        assert found["rho"]["value"] == pytest.approx(rho(played))
        assert found["rho"]["low"] < found["rho"]["value"] < found["rho"]["high"]
        assert found["mean_length"] == pytest.approx(sum(played.lengths.tolist()) / 150)
        assert found["fraction_finished"] == pytest.approx(sum(played.finished.tolist()) / 150)
        outcomes = list(zip(played.lengths.tolist(), played.finished.tolist(), strict=True))
        assert found["finished_lengths"] == [outcomes.count((move, True)) for move in range(1, 21)]
        assert found["unfinished_lengths"] == [outcomes.count((move, False)) for move in range(1, 21)]
        assert found["host_actions"] == played.host_actions.tolist()
        assert found["agent_actions"] == played.agent_actions.tolist()
    assert results["good"]["rho"]["low"] > results["bad"]["rho"]["high"]
    assert results["bad"]["unfinished_lengths"][-1] > 50


def test_intervals_over_runs_equal_a_plain_loop() -> None:
    """Ratios of sums, finished and moves drawn together: games of each run are drawn, then how runs differ."""
    runs = [result([30, 5, 0], [0, 0, 5]), result([20, 10, 5], [0, 0, 5]), result([25, 4, 5], [0, 1, 5])]
    games = [
        [(won, move) for won in (0, 1) for move in (1, 2, 3) for _ in range(counts[won][move - 1])]
        for counts in ((run["pair"]["unfinished_lengths"], run["pair"]["finished_lengths"]) for run in runs)
    ]
    random, ratios = Random(0), []
    of_runs = [35 / 55, 35 / 70, 34 / 65]
    for t in np.random.default_rng(0).standard_t(2, size=4000):
        drawn = [game for run in games for game in random.choices(run, k=40)]
        ratio = sum(won for won, _ in drawn) / sum(moves for _, moves in drawn)
        ratios.append(ratio + t * np.std(of_runs, ddof=1) / 3**0.5)
    found = rho_over_runs(runs, confidence=0.8, num_bootstrap=4000, seed=0)["pair"]
    assert found["value"] == pytest.approx((35 + 35 + 34) / (55 + 70 + 65))
    assert (found["low"], found["high"]) == pytest.approx(np.quantile(ratios, [0.1, 0.9]), rel=0.03)
    alone = rho_over_runs(runs[1:2], confidence=0.8, num_bootstrap=1000, seed=0)["pair"]
    assert alone["high"] - alone["low"] < (found["high"] - found["low"]) * 0.9
    apart = rho_over_runs([result([0, 0], [0, 40]), result([40, 0], [0, 0])], 0.9, 200, 0)["pair"]
    assert (apart["low"], apart["high"]) == (0, 1)


def test_covers_the_truth_as_often_as_promised() -> None:
    rng, covered = np.random.default_rng(0), 0
    for seed in range(300):
        natural = rng.geometric(0.3, size=100)
        finished, unfinished = (np.bincount(natural[where], minlength=8)[1:8] for where in (natural < 8, natural < 0))
        unfinished[6] = 100 - finished.sum()
        found = rho_over_runs([result(finished.tolist(), unfinished.tolist())], 0.9, 200, seed)["pair"]
        covered += found["low"] < 0.3 < found["high"]
    assert 0.84 < covered / 300 < 0.95


def test_runs_of_different_numbers_of_games_are_refused() -> None:
    with pytest.raises(ValueError, match="same shape"):
        rho_over_runs([result([1], [0]), result([2], [0])], 0.9, 10, 0)
