"""The polyhedra game as an environment: thousands of games side by side, each with its own clock, auto-reset and luck.

B streams, T steps, N rows for points, n coordinates. A stream plays game after game; all that is random in it follows
from its seed, so that it does not depend on which others run beside it. Positions are int64 and exact: a game whose
largest coordinate passes `MAX_COORDINATE` is truncated before anything is rounded or wraps around.

Rewards are one convention for both sides: the host gets +1 and the agent -1 with the move that ends the game, else 0.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from icrl.point_game.fixed_players import Agent, Host
from icrl.point_game.rules import (
    MAX_DIMENSION,
    PADDING,
    canonical,
    is_over,
    narrowed,
    random_starts,
    reduce,
    reposition,
    shift,
    subset_of,
    trim,
)
from icrl.randomness import mix, uniform

MAX_COORDINATE = 2**53  # n times as much fits int64, and up to here float64 is exact too
_HOST, _AGENT = 0, 1  # apart from each other in the counter of the players' luck
_CHANCE = 1 << 40  # added to the number of an episode, so that its players have other random numbers than its start


@dataclass(frozen=True)
class PointGameOptions:
    """Raises `ValueError` for what is out of range."""

    dimension: int  # n: 2 to 16
    max_num_points: int  # N: points drawn for a start, at least 2
    max_value: int  # coordinates of a start are uniform in 0 .. max_value, 1 to 2**20
    max_episode_steps: int  # moves after which a game is truncated, at least 1
    reposition: bool  # subtract each coordinate's minimum after every move: the same game in smaller numbers

    def __post_init__(self) -> None:
        limits = {"dimension": (2, MAX_DIMENSION), "max_num_points": (2, 2**10), "max_value": (1, 2**20)}
        for name, (low, high) in {**limits, "max_episode_steps": (1, 2**62)}.items():
            value = getattr(self, name)
            if type(value) is not int or not low <= value <= high:
                raise ValueError(f"{name}={value!r}: must be an int >= {low} and <= {high}")
        if type(self.reposition) is not bool:
            raise ValueError(f"reposition={self.reposition!r}: must be True or False")


class PointState(NamedTuple):
    """Where B games stand."""

    points: Tensor  # [B, N, n] int64, padding -1
    seed: Tensor  # [B] int64: decides all that is random in the stream
    episode: Tensor  # [B] int64: games finished so far
    timestep: Tensor  # [B] int64: moves since the start of the game


class Turn(NamedTuple):
    """Where the agent is to answer."""

    state: PointState
    subset: Tensor  # [B] int64: the number of the host's subset


class Ends(NamedTuple):
    """How the last move left B games, before any reset."""

    points: Tensor  # [B, N, n]
    terminated: Tensor  # [B] bool: the game is over, or the agent's coordinate was not in the subset
    truncated: Tensor  # [B] bool: the clock ran out, or coordinates became too large


class PointRollout(NamedTuple):
    """`[T, B]` moves. Row t of a stream is what its t-th turn was; nothing is dropped or reordered.

    `next_subset` is what the host plays on `next_points`. Where the game goes on it is `subset` of row t + 1; where it
    was truncated it is what the host would have played, which is what an agent's value bootstraps from."""

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
    """Rules and clock; `play` starts the next game in the step in which one ends (SAME_STEP)."""

    def __init__(self, options: PointGameOptions) -> None:
        self.options = options

    def start(self, seed: Tensor, episode: Tensor) -> Tensor:
        """First positions `[B, N, n]` of the games numbered `episode`: at least two points, in canonical order."""
        size = (self.options.max_num_points, self.options.dimension, self.options.max_value)
        return canonical(random_starts(mix(seed, episode), *size))

    def reset(self, seeds: Tensor) -> PointState:
        """Start a stream for each of `seeds` `[B]` int64."""
        zero = torch.zeros_like(seeds)
        return PointState(self.start(seeds, zero), seeds, zero, zero)

    def step(self, state: PointState, subset: Tensor, axis: Tensor) -> tuple[PointState, Ends]:
        """The host's subsets `[B]` by number and the agent's coordinates `[B]`, without auto-reset.

        An agent whose coordinate is not in the subset loses the game there and then: left as it is, the position could
        be held for ever. Raises `ValueError` for a number that names no subset."""
        coords = subset_of(subset, self.options.dimension)
        legal = (coords & (torch.arange(self.options.dimension, device=axis.device) == axis[:, None])).any(1)
        moved = reduce(shift(narrowed(trim(state.points), self.options.dimension), coords, axis))
        moved = reposition(moved) if self.options.reposition else moved
        timestep = state.timestep + 1
        too_large = moved.amax((1, 2)).long() > MAX_COORDINATE
        points = state.points.new_empty(state.points.shape[::-1]).permute(2, 1, 0)  # games innermost in memory
        points[:, : moved.shape[1]], points[:, moved.shape[1] :] = moved, PADDING
        ends = Ends(points, is_over(moved) | ~legal, too_large | (timestep >= self.options.max_episode_steps))
        return state._replace(points=points, timestep=timestep), ends

    def next_episode(self, state: PointState, where: Tensor) -> PointState:
        """Start the next game in the streams where `where` `[B]` is true."""
        episode = state.episode + where
        points = state.points.clone()
        points[where] = self.start(state.seed[where], episode[where])
        return PointState(points, state.seed, episode, state.timestep.masked_fill(where, 0))

    def ask(self, host: Host, state: PointState) -> Turn:
        """Have the host name its subsets."""
        return Turn(state, host(state.points, _luck(state, _HOST)))

    def answer(self, agent: Agent, state: PointState, subset: Tensor) -> Tensor:
        """The agent's coordinates `[B]`."""
        return agent(state.points, subset_of(subset, self.options.dimension), _luck(state, _AGENT))

    def next_turn(self, host: Host, turn: Turn, where: Tensor) -> Turn:
        """`next_episode`, in which the host is asked anew where `where` `[B]` is true."""
        if not where.any():
            return turn
        state = self.next_episode(turn.state, where)
        subset = turn.subset.clone()
        subset[where] = self.ask(host, PointState(*(field[where] for field in state))).subset
        return Turn(state, subset)


def host_reward(terminated: Tensor) -> Tensor:
    """+1 with the end of the game, else 0, float32; the agent's reward is its negative."""
    return terminated.float()


@torch.no_grad()
def play(game: PointGame, host: Host, agent: Agent, turn: Turn, num_steps: int) -> tuple[PointRollout, Turn]:
    """Play `num_steps` moves in every stream, from `game.ask(host, game.reset(seeds))` or where an earlier rollout
    stopped: two rollouts of n moves equal one of 2n."""
    record: list[Tensor] = []
    for time in range(num_steps):
        state, subset = turn
        axis = game.answer(agent, state, subset)
        after, ends = game.step(state, subset, axis)
        asked = game.ask(host, after)
        row = PointRollout(
            *(state.points, subset, axis, ends.points, asked.subset, ends.terminated, ends.truncated),
            *(state.episode, state.timestep),
        )
        record = record or [_reserve(column, num_steps) for column in row]
        for column, values in zip(record, row, strict=True):
            column[time] = values  # at once, so that the memory of the row is free for the next
        turn = game.next_turn(host, asked, ends.terminated | ends.truncated)
    return PointRollout(*record), turn


def _reserve(column: Tensor, num_steps: int) -> Tensor:
    """Space for `num_steps` tensors like `column`, games innermost in memory."""
    axes = range(column.ndim, 0, -1)
    return column.new_empty(num_steps, *reversed(column.shape)).permute(0, *axes)


def _luck(state: PointState, role: int) -> Tensor:
    """The players' noise `[B]` at this move of this game of the stream."""
    return uniform(mix(state.seed, state.episode + _CHANCE), 2 * state.timestep + role)
