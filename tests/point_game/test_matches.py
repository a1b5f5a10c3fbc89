"""Matches against plain Python, and rho by hand."""

import json
from random import Random
from typing import Any

import numpy as np
import pytest
import scalar_points as scalar
import torch
from torch import Tensor

from icrl.point_game.fixed_players import AGENTS, HOSTS, zeillinger
from icrl.point_game.rollout import PointGame, PointGameOptions, match, measure, players_of, rho_over_runs
from icrl.point_game.rules import is_over

GAME = PointGame(PointGameOptions(dimension=3, max_num_points=8, max_value=9, max_episode_steps=3, reposition=False))


def result(finished: list[int], unfinished: list[int]) -> dict[str, Any]:
    """Results of one pair of players: games by their number of moves."""
    return {"pair": {"finished_lengths": finished, "unfinished_lengths": unfinished}}


def rho(lengths: Any, finished: Any, num_bootstrap: int = 100, seed: int = 0) -> dict[str, float]:
    lengths, finished = np.array(lengths), np.array(finished)
    counts = [np.bincount(lengths[finished == won], minlength=101)[1:].tolist() for won in (True, False)]
    return rho_over_runs([result(*counts)], 0.9, num_bootstrap, seed)["pair"]


@pytest.mark.parametrize(("agent", "answer"), [("first", min), ("last", max)])
@pytest.mark.parametrize("max_moves", [1, 12])
def test_a_match_equals_single_games_in_plain_python(agent: str, answer: Any, max_moves: int) -> None:
    """Lengths and every action of 60 games, for any clock of the game; players get unfinished games alone, and no
    gradients."""
    positions: list[Tensor] = []
    weight = torch.ones(1, requires_grad=True)

    def host(points: Tensor, noise: Tensor) -> Tensor:
        assert not (points * weight).requires_grad
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
    results = measure(GAME, pairs, 150, 20, seed=6, confidence=0.9, num_bootstrap=200)
    assert json.loads(json.dumps(results)) == results and players_of(results) == (["a", "c"], ["b"])
    for name, players in pairs.items():
        played, found = match(GAME, *players, 150, 20, seed=6), results[name]
        outcomes = [*zip(played.lengths.tolist(), played.finished.tolist(), strict=True)]
        assert found["rho"]["value"] == pytest.approx(rho(*zip(*outcomes, strict=True))["value"])
        assert found["rho"]["low"] < found["rho"]["value"] < found["rho"]["high"]
        assert found["mean_length"] == pytest.approx(sum(length for length, _ in outcomes) / 150)
        assert found["fraction_finished"] == pytest.approx(sum(won for _, won in outcomes) / 150)
        for key, won in (("finished_lengths", True), ("unfinished_lengths", False)):
            assert found[key] == [outcomes.count((move, won)) for move in range(1, 21)]
        assert found["host_actions"] == played.host_actions.tolist()
        assert found["agent_actions"] == played.agent_actions.tolist()
    assert results["a_vs_b"]["rho"]["low"] > results["c_vs_b"]["rho"]["high"]


def test_rho_of_one_run_by_hand_and_of_several() -> None:
    """Runs that agree leave the chance of the games; runs that differ widen the interval, within [0, 1]."""
    assert rho([1, 3, 10, 10], [True, True, False, True])["value"] == 3 / 24
    assert rho([10, 10], [False, False])["value"] == 0 and rho([1, 1, 1], [True] * 3)["value"] == 1
    run, other = result([30, 5, 0], [0, 0, 5]), result([20, 10, 5], [0, 0, 5])
    alike, apart = (rho_over_runs(runs, 0.8, 1000, seed=0)["pair"] for runs in ([run, run], [run, other]))
    assert apart["value"] == pytest.approx((35 + 35) / (55 + 70))
    assert alike["high"] - alike["low"] < (apart["high"] - apart["low"]) / 2
    extreme = rho_over_runs([result([0, 0], [0, 40]), result([40, 0], [0, 0])], 0.9, 200, 0)["pair"]
    assert (extreme["low"], extreme["high"]) == (0, 1)
    with pytest.raises(ValueError, match="same shape"):
        rho_over_runs([result([1], [0]), result([2], [0])], 0.9, 10, 0)
