"""How strong two players of the polyhedra game are against each other: games finished per move, and how they went.

    rho(host, agent) = games finished / moves played,

between 0 and 1, high for a strong host, low for a strong agent: an estimate of lim g(k) / k, with g(k) the games
finished in the first k moves when one game follows another. A game that was broken off counts with its moves but not as
finished.

M games, n coordinates, A = 2**n - n - 1 subsets, R runs (trainings with seeds of their own).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from icrl.contracts import Json
from icrl.point_game.fixed_players import Agent, Host
from icrl.point_game.rollout import PointGame, PointState
from icrl.point_game.rules import subsets
from icrl.randomness import stream_seeds
from icrl.rl.statistics import bootstrap_ratios, percentile_interval


class Match(NamedTuple):
    """M games, each played once."""

    lengths: Tensor  # [M] int64: moves; `max_moves` where the game was not finished, fewer if numbers became too large
    finished: Tensor  # [M] bool: the host won; as does an agent's answer outside the subset, which loses the game
    host_actions: Tensor  # [A] int64: how often each subset was named
    agent_actions: Tensor  # [n] int64: how often each coordinate was answered


@torch.no_grad()
def match(game: PointGame, host: Host, agent: Agent, num_games: int, max_moves: int, seed: int) -> Match:
    """Play `num_games` games side by side until each is finished, or for `max_moves`: the clock of `game` plays no
    part. Starts and luck of game k are functions of (`seed`, k), so that all pairs of players face the same ones.

    Players are handed the games that go on, and those only. Raises `ValueError` for less than one game or move."""
    if num_games < 1:
        raise ValueError(f"num_games={num_games}: must be >= 1")
    game = PointGame(replace(game.options, max_episode_steps=max_moves))
    state, dimension = game.reset(stream_seeds(seed, num_games, purpose=5)), game.options.dimension
    lengths, finished = torch.zeros(num_games, dtype=torch.int64), torch.zeros(num_games, dtype=torch.bool)
    host_actions = torch.zeros(len(subsets(dimension)), dtype=torch.int64)
    agent_actions = torch.zeros(dimension, dtype=torch.int64)
    playing = torch.arange(num_games)
    while len(playing):
        subset = game.ask(host, state).subset
        axis = game.answer(agent, state, subset)
        state, ends = game.step(state, subset, axis)
        host_actions += subset.bincount(minlength=len(host_actions))
        agent_actions += (axis[:, None] == torch.arange(dimension)).sum(0)
        lengths[playing], finished[playing] = state.timestep, ends.terminated
        going = ~(ends.terminated | ends.truncated)
        playing, state = playing[going], PointState(*(field[going] for field in state))
    return Match(lengths, finished, host_actions, agent_actions)


def measure(
    game: PointGame,
    pairs: Mapping[str, tuple[Host, Agent]],
    num_games: int,
    max_moves: int,
    seed: int,
    confidence: float,
    num_bootstrap: int,
) -> Json:
    """A match of each pair of players, as numbers that JSON can hold, by the pairs' names:

    `rho`: `value`, and `low` and `high` of its bootstrap interval over games; `mean_length` in moves, where a game that
    was broken off counts with what was played; `fraction_finished`; `finished_lengths` and `unfinished_lengths`: games
    of 1 .. `max_moves` moves, a count each; `host_actions` by number of the subset, `agent_actions` by coordinate."""
    results = {}
    for name, players in tqdm(pairs.items(), desc="matches", unit="pair", leave=False):
        played = match(game, *players, num_games, max_moves, seed)
        results[name] = {
            "mean_length": played.lengths.double().mean().item(),
            "fraction_finished": played.finished.double().mean().item(),
            "finished_lengths": _histogram(played.lengths[played.finished], max_moves),
            "unfinished_lengths": _histogram(played.lengths[~played.finished], max_moves),
            "host_actions": played.host_actions.tolist(),
            "agent_actions": played.agent_actions.tolist(),
        }
    intervals = rho_over_runs([results], confidence, num_bootstrap, seed)
    return {name: {"rho": intervals[name], **result} for name, result in results.items()}


def players_of(results: Json) -> tuple[list[str], list[str]]:
    """The hosts and the agents of pairs that are called `<host>_vs_<agent>`."""
    hosts, agents = zip(*(pair.split("_vs_") for pair in results), strict=True)
    return list(dict.fromkeys(hosts)), list(dict.fromkeys(agents))


def rho_over_runs(runs: Sequence[Json], confidence: float, num_bootstrap: int, seed: int) -> Json:
    """`value`, `low` and `high` of rho for each pair of players that `measure` gave for R runs: finished games of all
    runs over moves of all runs. The interval is that of a bootstrap which draws games of each run with replacement, and
    adds the spread of the runs as Student's t has it (see `statistics`); with one run it covers the luck of the games
    alone.

    Raises `ValueError` where runs differ in the number of games."""
    return {
        name: _rho_interval(np.stack([_outcomes(run[name]) for run in runs]), confidence, num_bootstrap, seed)
        for name in runs[0]
    }


def _rho_interval(outcomes: NDArray[np.int64], confidence: float, num_bootstrap: int, seed: int) -> dict[str, float]:
    """Of `outcomes` `[R, M, 2]`: whether the game was finished, and its moves. Both are resampled together."""
    finished, moves = np.moveaxis(outcomes[:, None].astype(np.float64), -1, 0)  # [R, 1, M] each
    resampled = bootstrap_ratios(finished, moves, num_bootstrap, seed)
    low, high = percentile_interval(resampled.clip(0, 1), confidence)
    return {"value": float(finished.sum() / moves.sum()), "low": float(low), "high": float(high)}


def _outcomes(result: Json) -> NDArray[np.int64]:
    """`[M, 2]`: whether each game was finished, and its moves; in order of lengths, which no statistic depends on."""
    parts = [
        np.repeat([[won, length] for length in range(1, len(counts) + 1)], counts, axis=0)
        for won, counts in enumerate((result["unfinished_lengths"], result["finished_lengths"]))
    ]
    return np.concatenate(parts)


def _histogram(lengths: Tensor, max_moves: int) -> list[int]:
    """How many games took 1 .. `max_moves` moves."""
    return lengths.bincount(minlength=max_moves + 1)[1:].tolist()
