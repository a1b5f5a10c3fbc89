"""Environment of the polyhedra game: many games side by side, each with its own clock, auto-reset and random numbers.
Matches between players measure their strength.

A stream plays game after game. It is a function of its seed and its actions, and does not depend on the other streams.
Positions are int64 and exact: a game whose largest coordinate exceeds `MAX_COORDINATE` is truncated before a number is
rounded or wraps around. B streams, T steps, M games of a match, N rows for points, n coordinates, A actions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from icrl.contracts import Json
from icrl.extensions.point_game import rules
from icrl.extensions.point_game.fixed_players import Agent, Host
from icrl.randomness import mix, stream_seeds, uniform
from icrl.rl.statistics import bootstrap_ratios, percentile_interval
from icrl.runs.processes import progress_bar

Pairs = Mapping[str, tuple[Host, Agent]]

MAX_COORDINATE = 2**53  # n times as much fits int64, and up to here float64 is exact too
_NUM_BOOTSTRAP = 2000  # resamples of an interval
_CHANCE = 1 << 40  # added to the number of an episode, so that its players have other random numbers than its start


@dataclass(frozen=True, config=ConfigDict(strict=True, extra="forbid"))
class PointGameOptions:
    """Options of the game. Raises `ValueError` for a value out of range."""

    dimension: Annotated[int, Field(ge=2, le=16)]  # n; the tables of subsets have 2**n rows
    max_num_points: Annotated[int, Field(ge=2, le=2**10)]  # N: points drawn for a start
    max_value: Annotated[int, Field(ge=1, le=2**20)]  # coordinates of a start are uniform in 0 .. max_value
    max_episode_steps: Annotated[int, Field(ge=1, le=2**62)]  # moves after which a game is truncated
    reposition: bool  # subtract each coordinate's minimum after every move: the same game in smaller numbers


class PointState(NamedTuple):
    """State of B games."""

    points: Tensor  # [B, N, n] int64, padding -1
    seed: Tensor  # [B] int64: seed of all random numbers of the stream
    episode: Tensor  # [B] int64: games finished so far
    timestep: Tensor  # [B] int64: moves since the start of the game
    subset: Tensor  # [B] int64: the number of the host's subset, once it was asked


class PointRollout(NamedTuple):
    """Moves `[T, B]`: row t of a stream is its t-th turn.

    `next_subset` is what the host plays on `next_points`. If the game continues, it is `subset` of row t + 1. If the
    game was truncated, an agent's value bootstraps from it."""

    points: Tensor  # [T, B, N, n]
    subset: Tensor
    axis: Tensor
    next_points: Tensor  # [T, B, N, n], before any reset: the final observation where the game ended
    next_subset: Tensor
    terminated: Tensor
    truncated: Tensor
    episode: Tensor
    timestep: Tensor  # of `points`: moves since the start of the game


class PointGame:
    """Rules and clock, for any state with the fields of `PointState`."""

    def __init__(self, options: PointGameOptions) -> None:
        self.options = options

    def start(self, seed: Tensor, episode: Tensor) -> Tensor:
        """First positions `[B, N, n]` of the games numbered `episode`: at least two points, in canonical order."""
        size = self.options.max_num_points, self.options.dimension, self.options.max_value
        return rules.canonical(rules.random_starts(mix(seed, episode), *size))

    def reset(self, seeds: Tensor) -> PointState:
        """Start a stream for each of `seeds` `[B]` int64."""
        zero = torch.zeros_like(seeds)
        return PointState(self.start(seeds, zero), seeds, zero, zero, zero)

    def step(self, state: Any, subset: Tensor, axis: Tensor) -> tuple[Any, Tensor, Tensor]:
        """Apply the host's subsets `[B]`, by number, and the agent's coordinates `[B]`, without auto-reset; returns the
        next state and whether each game is terminated (over) and truncated (by the clock or too large coordinates).

        An agent whose coordinate is not in the subset loses the game at once; otherwise it could keep the position for
        ever. Raises `ValueError` for a number that names no subset."""
        coords = rules.subset_of(subset, self.options.dimension)
        legal = (coords & (torch.arange(self.options.dimension, device=axis.device) == axis[:, None])).any(1)
        narrow = rules.narrowed(rules.trim(state.points), self.options.dimension)
        moved = rules.reduce(rules.shift(narrow, coords, axis))
        moved = rules.reposition(moved) if self.options.reposition else moved
        timestep = state.timestep + 1
        truncated = (moved.amax((1, 2)).long() > MAX_COORDINATE) | (timestep >= self.options.max_episode_steps)
        points = state.points.new_empty(state.points.shape[::-1]).permute(2, 1, 0)  # games innermost in memory
        points[:, : moved.shape[1]], points[:, moved.shape[1] :] = moved, rules.PADDING
        return state._replace(points=points, timestep=timestep), rules.is_over(moved) | ~legal, truncated

    def ask(self, host: Host, state: Any) -> Any:
        """Let the host name its subsets."""
        return state._replace(subset=host(state.points, _noise(state, 0)))

    def answer(self, agent: Agent, state: Any, subset: Tensor) -> Tensor:
        """Coordinates `[B]` that the agent answers."""
        return agent(state.points, rules.subset_of(subset, self.options.dimension), _noise(state, 1))

    def next_game(self, host: Host, state: PointState, where: Tensor) -> PointState:
        """Start the next game and ask the host in the streams where `where` `[B]` is true."""
        if not where.any():
            return state
        seed, episode = state.seed[where], state.episode[where] + 1
        zero = torch.zeros_like(episode)
        fresh = self.ask(host, PointState(self.start(seed, episode), seed, episode, zero, zero))
        return PointState(*(old.index_put((where,), new) for old, new in zip(state, fresh, strict=True)))


@torch.no_grad()
def play(
    game: PointGame, host: Host, agent: Agent, state: PointState, num_steps: int
) -> tuple[PointRollout, PointState]:
    """Play `num_steps` moves in every stream, from `game.ask(host, game.reset(seeds))` or from the end of an earlier
    rollout: two rollouts of n moves equal one of 2n. The next game starts in the step in which one ends (SAME_STEP)."""
    record: list[Tensor] = []
    for time in range(num_steps):
        axis = game.answer(agent, state, state.subset)
        after, terminated, truncated = game.step(state, state.subset, axis)
        after = game.ask(host, after)
        moves = (state.points, state.subset, axis, after.points, after.subset)
        row = PointRollout(*moves, terminated, truncated, state.episode, state.timestep)
        record = record or [  # games innermost in memory
            column.new_empty(num_steps, *column.shape[::-1]).permute(0, *range(column.ndim, 0, -1)) for column in row
        ]
        for column, values in zip(record, row, strict=True):
            column[time] = values  # at once, so that the memory of the row is free for the next
        state = game.next_game(host, after, terminated | truncated)
    return PointRollout(*record), state


def _noise(state: Any, role: int) -> Tensor:
    """Noise `[B]` of the host (0) or the agent (1) at this move of this game of the stream."""
    return uniform(mix(state.seed, state.episode + _CHANCE), 2 * state.timestep + role)


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
        torch.zeros(size, dtype=torch.int64) for size in (num_games, len(rules.subsets(dimension)), dimension)
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


def measure(game: PointGame, pairs: Pairs, num_games: int, max_moves: int, seed: int) -> Json:
    """Play a match of each pair of players; returns numbers that JSON can hold, by the pairs' names:

    `rho`: `value`, and `low` and `high` of its bootstrap interval over games; `mean_length` in moves, with those of
    unfinished games; `fraction_finished`; `finished_lengths` and `unfinished_lengths`: a count of the games of each of
    1 .. `max_moves` moves; `host_actions` by number of the subset, `agent_actions` by coordinate."""
    results = {}
    for name, (host, agent) in progress_bar(pairs.items(), desc="matches", unit="pair", leave=False):
        lengths, finished, host_actions, agent_actions = match(game, host, agent, num_games, max_moves, seed)
        results[name] = {
            "mean_length": lengths.double().mean().item(),
            "fraction_finished": finished.double().mean().item(),
            "finished_lengths": lengths[finished].bincount(minlength=max_moves + 1)[1:].tolist(),
            "unfinished_lengths": lengths[~finished].bincount(minlength=max_moves + 1)[1:].tolist(),
            "host_actions": host_actions.tolist(),
            "agent_actions": agent_actions.tolist(),
        }
    intervals = rho_over_runs([results], seed)
    return {name: {"rho": intervals[name], **result} for name, result in results.items()}


def players_of(results: Json) -> tuple[list[str], list[str]]:
    """Hosts and agents of pairs that are called `<host>_vs_<agent>`."""
    hosts, agents = zip(*(pair.split("_vs_") for pair in results), strict=True)
    return list(dict.fromkeys(hosts)), list(dict.fromkeys(agents))


def rho_over_runs(runs: Sequence[Json], seed: int) -> Json:
    """Rho, high for a strong host, for each pair of players in the results of `measure` for R runs: its `value`, games
    finished in all runs over moves of all games, and `low` and `high` of a bootstrap that draws games of each run with
    replacement and adds the spread of the runs by Student's t (see `statistics`), if there are several.

    Raises `ValueError` if runs differ in the number of games."""
    found = {}
    for name in runs[0]:
        outcomes = []  # of each run: whether each game was finished, and its moves, [2, M]
        for result in (run[name] for run in runs):
            counts = [*result["unfinished_lengths"], *result["finished_lengths"]]
            won, length = np.divmod(np.arange(len(counts)), len(counts) // 2)
            outcomes.append(np.stack([won, length + 1]).repeat(counts, axis=1).astype(np.float64))
        finished, moves = np.stack(outcomes, axis=1)[:, :, None]  # [R, 1, M] each
        resampled = bootstrap_ratios(finished, moves, _NUM_BOOTSTRAP, seed)
        low, high = percentile_interval(resampled.clip(0, 1))
        found[name] = {"value": float(finished.sum() / moves.sum()), "low": float(low), "high": float(high)}
    return found
