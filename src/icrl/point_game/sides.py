"""One side of the polyhedra game as a task for one learner, the other side being a fixed player. B streams.

The host sees the points `[N, n]` and names a subset by its number; the agent sees the points and the host's subset, 0
or 1 for each coordinate `[n]`, and names a coordinate of it. Points are in canonical order, padded with -1. Rescaled
they are float32, divided by the largest coordinate of the position; otherwise int64 and exact.
"""

from typing import Any, Protocol

import numpy as np
import torch
from gymnasium import Space
from gymnasium.spaces import Box, Dict, MultiBinary
from numpy.typing import NDArray
from torch import Tensor

from icrl.point_game.fixed_players import AGENTS, HOSTS, Agent, Host
from icrl.point_game.rollout import MAX_COORDINATE, Ends, PointGame, PointGameOptions, Turn, host_reward
from icrl.point_game.rules import PADDING, canonical, legal_axes, rescale, subset_of, subsets

Mask = NDArray[np.int8]


class Side(Protocol):
    """What the Gymnasium faces need to know of a side."""

    observation_space: Space[Any]
    num_actions: int

    def begin(self, seeds: Tensor) -> Turn:
        """Start a stream for each of `seeds` `[B]` int64."""
        ...

    def move(self, turn: Turn, action: Tensor) -> tuple[Turn, Ends]:
        """The learner's actions `[B]` and the other player's, without auto-reset."""
        ...

    def next_turn(self, turn: Turn, where: Tensor) -> Turn:
        """Start the next game in the streams where `where` `[B]` is true."""
        ...

    def observe(self, turn: Turn) -> Any:
        """The observations of all streams, arrays `[B, ...]` of their own."""
        ...

    def mask(self, turn: Turn) -> Mask:
        """1 for the actions that are legal, `[B, num_actions]`; the agent has none where the game is over."""
        ...

    def reward(self, ends: Ends) -> NDArray[np.float64]: ...


class HostSide:
    """The learner is the host, `agent` answers. Where the learner is to choose there is no subset yet: 0."""

    def __init__(self, game: PointGame, agent: Agent, scale_observation: bool) -> None:
        self._game, self._agent, self._scale = game, agent, scale_observation
        self.num_actions = len(subsets(game.options.dimension))
        self.observation_space: Space[Any] = _points_space(game.options, scale_observation)

    def begin(self, seeds: Tensor) -> Turn:
        return Turn(self._game.reset(seeds), torch.zeros_like(seeds))

    def move(self, turn: Turn, action: Tensor) -> tuple[Turn, Ends]:
        state, ends = self._game.step(turn.state, action, self._game.answer(self._agent, turn.state, action))
        return turn._replace(state=state), ends

    def next_turn(self, turn: Turn, where: Tensor) -> Turn:
        return turn._replace(state=self._game.next_episode(turn.state, where))

    def observe(self, turn: Turn) -> NDArray[Any]:
        return _shown(turn.state.points, self._scale)

    def mask(self, turn: Turn) -> Mask:
        return np.ones((len(turn.subset), self.num_actions), np.int8)

    def reward(self, ends: Ends) -> NDArray[np.float64]:
        return host_reward(ends.terminated).double().numpy()


class AgentSide:
    """The learner is the agent and answers `host`."""

    def __init__(self, game: PointGame, host: Host, scale_observation: bool) -> None:
        self._game, self._host, self._scale = game, host, scale_observation
        self.num_actions = game.options.dimension
        points = _points_space(game.options, scale_observation)
        self.observation_space: Space[Any] = Dict({"points": points, "coords": MultiBinary(self.num_actions)})

    def begin(self, seeds: Tensor) -> Turn:
        return self._game.ask(self._host, self._game.reset(seeds))

    def move(self, turn: Turn, action: Tensor) -> tuple[Turn, Ends]:
        state, ends = self._game.step(turn.state, turn.subset, action)
        return self._game.ask(self._host, state), ends

    def next_turn(self, turn: Turn, where: Tensor) -> Turn:
        return self._game.next_turn(self._host, turn, where)

    def observe(self, turn: Turn) -> dict[str, NDArray[Any]]:
        return {"coords": self.mask(turn), "points": _shown(turn.state.points, self._scale)}

    def mask(self, turn: Turn) -> Mask:
        coords = subset_of(turn.subset, self.num_actions)
        return legal_axes(turn.state.points, coords).numpy().astype(np.int8)

    def reward(self, ends: Ends) -> NDArray[np.float64]:
        return -host_reward(ends.terminated).double().numpy()


def make_side(role: str, opponent: str, scale_observation: bool, options: PointGameOptions) -> Side:
    """The side `role`, host or agent, against the fixed player `opponent` of the other side. Raises `ValueError` for
    names that are not known, and where `scale_observation` is no bool."""
    if type(scale_observation) is not bool:
        raise ValueError(f"scale_observation={scale_observation!r}: must be True or False")
    game = PointGame(options)
    if role == "host":
        return HostSide(game, _named(AGENTS, opponent), scale_observation)
    if role == "agent":
        return AgentSide(game, _named(HOSTS, opponent), scale_observation)
    raise ValueError(f"role={role!r}: must be host or agent")


def _named(players: dict[str, Any], opponent: str) -> Any:
    if opponent not in players:
        raise ValueError(f"opponent={opponent!r}: must be one of {', '.join(players)}")
    return players[opponent]


def _points_space(options: PointGameOptions, scale_observation: bool) -> Box:
    """The position that a move to coordinates too large leads to is the last that is seen."""
    shape = (options.max_num_points, options.dimension)
    if scale_observation:
        return Box(PADDING, 1.0, shape, np.float32)
    return Box(PADDING, options.dimension * MAX_COORDINATE, shape, np.int64)


def _shown(points: Tensor, scale_observation: bool) -> NDArray[Any]:
    points = canonical(points)  # a tensor of its own
    return (rescale(points).float() if scale_observation else points).numpy()
