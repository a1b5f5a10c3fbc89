"""Matches between players of the polyhedra game, and their strength rho:

    rho(host, agent) = games finished / moves played,

between 0 and 1, high for a strong host, low for a strong agent: an estimate of lim g(k) / k, with g(k) the games
finished in the first k moves when one game follows another. An unfinished game counts with its moves alone. M games, n
coordinates, A = 2**n - n - 1 subsets, R runs (trainings with seeds of their own).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from icrl.contracts import Json
from icrl.point_game.fixed_players import Agent, Host
from icrl.point_game.rollout import PointGame, PointState
from icrl.point_game.rules import subsets
from icrl.randomness import stream_seeds
from icrl.rl.statistics import bootstrap_ratios, percentile_interval

Pairs = Mapping[str, tuple[Host, Agent]]


class Match(NamedTuple):
    """Results of M games, each played once."""

    lengths: Tensor  # [M] int64: moves; an unfinished game has `max_moves`, or fewer if numbers became too large
    finished: Tensor  # [M] bool: the host won, also by an answer outside the subset, which loses the game
    host_actions: Tensor  # [A] int64: how often the host named each subset
    agent_actions: Tensor  # [n] int64: how often the agent answered each coordinate


@torch.no_grad()
def match(game: PointGame, host: Host, agent: Agent, num_games: int, max_moves: int, seed: int) -> Match:
    """Play `num_games` games side by side until each is finished, or for `max_moves`; the clock of `game` is not used.
    Starts and noise of game k are functions of (`seed`, k), so all pairs of players face the same ones. Players get the
    unfinished games alone."""
    game = PointGame(replace(game.options, max_episode_steps=max_moves))
    state, dimension = game.reset(stream_seeds(seed, num_games, purpose=5)), game.options.dimension
    lengths, host_actions, agent_actions = (
        torch.zeros(size, dtype=torch.int64) for size in (num_games, len(subsets(dimension)), dimension)
    )
    finished, playing = torch.zeros(num_games, dtype=torch.bool), torch.arange(num_games)
    while len(playing):
        subset = game.ask(host, state).subset
        axis = game.answer(agent, state, subset)
        state, terminated, truncated = game.step(state, subset, axis)
        host_actions += subset.bincount(minlength=len(host_actions))
        agent_actions += (axis[:, None] == torch.arange(dimension)).sum(0)
        lengths[playing], finished[playing] = state.timestep, terminated
        going = ~(terminated | truncated)
        playing, state = playing[going], PointState(*(field[going] for field in state))
    return Match(lengths, finished, host_actions, agent_actions)


def measure(
    game: PointGame, pairs: Pairs, num_games: int, max_moves: int, seed: int, confidence: float, num_bootstrap: int
) -> Json:
    """Play a match of each pair of players; returns numbers that JSON can hold, by the pairs' names:

    `rho`: `value`, and `low` and `high` of its bootstrap interval over games; `mean_length` in moves, with those of
    unfinished games; `fraction_finished`; `finished_lengths` and `unfinished_lengths`: a count of the games of each of
    1 .. `max_moves` moves; `host_actions` by number of the subset, `agent_actions` by coordinate."""
    results = {}
    for name, players in tqdm(pairs.items(), desc="matches", unit="pair", leave=False):
        lengths, finished, host_actions, agent_actions = match(game, *players, num_games, max_moves, seed)
        results[name] = {
            "mean_length": lengths.double().mean().item(),
            "fraction_finished": finished.double().mean().item(),
            "finished_lengths": lengths[finished].bincount(minlength=max_moves + 1)[1:].tolist(),
            "unfinished_lengths": lengths[~finished].bincount(minlength=max_moves + 1)[1:].tolist(),
            "host_actions": host_actions.tolist(),
            "agent_actions": agent_actions.tolist(),
        }
    intervals = rho_over_runs([results], confidence, num_bootstrap, seed)
    return {name: {"rho": intervals[name], **result} for name, result in results.items()}


def players_of(results: Json) -> tuple[list[str], list[str]]:
    """Hosts and agents of pairs that are called `<host>_vs_<agent>`."""
    hosts, agents = zip(*(pair.split("_vs_") for pair in results), strict=True)
    return list(dict.fromkeys(hosts)), list(dict.fromkeys(agents))


def rho_over_runs(runs: Sequence[Json], confidence: float, num_bootstrap: int, seed: int) -> Json:
    """Interval of rho for each pair of players in the results of `measure` for R runs: its `value`, the finished games
    of all runs over their moves, and `low` and `high` of a bootstrap that draws games of each run with replacement, and
    adds the spread of the runs by Student's t (see `statistics`). With one run it covers the chance of the games alone.

    Raises `ValueError` if runs differ in the number of games."""
    found = {}
    for name in runs[0]:
        outcomes = []  # of each run: whether each game was finished, and its moves, [2, M]
        for result in (run[name] for run in runs):
            counts = [*result["unfinished_lengths"], *result["finished_lengths"]]
            won, length = np.divmod(np.arange(len(counts)), len(counts) // 2)
            outcomes.append(np.stack([won, length + 1]).repeat(counts, axis=1).astype(np.float64))
        finished, moves = np.stack(outcomes, axis=1)[:, :, None]  # [R, 1, M] each
        resampled = bootstrap_ratios(finished, moves, num_bootstrap, seed)
        low, high = percentile_interval(resampled.clip(0, 1), confidence)
        found[name] = {"value": float(finished.sum() / moves.sum()), "low": float(low), "high": float(high)}
    return found
