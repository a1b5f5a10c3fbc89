"""Gymnasium environments of the polyhedra game: the learner plays one side against a fixed or saved player on the
other.

The host sees the points `[N, n]` and names a subset by its number. The agent sees the points and the host's subset, 0
or 1 for each coordinate `[n]`, and names a coordinate of it. `info["action_mask"]` marks the legal actions,
`info["timestep"]` counts the moves since the reset.

Stream i of B after `reset(seed=s)` equals a single game after `reset(seed=s + i)`, step by step: a function of its seed
and its actions. A reset without a seed starts the next game of the same stream.
"""

import re
from collections.abc import Callable, Sequence
from operator import index
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from gymnasium import Env
from gymnasium.error import InvalidAction, ResetNeeded
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary
from gymnasium.utils.seeding import np_random
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space, iterate
from numpy.typing import NDArray
from pydantic import ConfigDict, PositiveInt, ValidationError, validate_call

from icrl.extensions.as_gymnasium.environments import final_infos, reset_mask, seeds_of, started, stream_seeds
from icrl.extensions.point_game.fixed_players import AGENTS, HOSTS, Host
from icrl.extensions.point_game.players.options import OTHER, SAVED
from icrl.extensions.point_game.players.trained_players import load_player
from icrl.extensions.point_game.rollout import MAX_COORDINATE, PointGame, PointGameOptions, PointState
from icrl.extensions.point_game.rules import PADDING, canonical, is_over, rescale, subset_of, subsets

Ints = NDArray[np.int64]
Infos = dict[str, Any]
Seed = int | None
Made = TypeVar("Made")
_Role = Literal["host", "agent"]
_NO_LIMIT = 2**62


class BatchedPointGame(VectorEnv[Any, Ints, NDArray[Any]]):
    """B streams of one side stepped as one batch, with auto-reset in the same step; `opponent` plays the other side. As
    host the learner chooses the subset itself, so the subset of the state is 0."""

    metadata: Infos = {"render_modes": [], "autoreset_mode": AutoresetMode.SAME_STEP}

    @validate_call(config=ConfigDict(strict=True))
    def __init__(
        self, num_envs: PositiveInt = 1, *, role: _Role, opponent: str, scale_observation: bool, **given: Any
    ) -> None:
        """`given` are `PointGameOptions`; without `max_episode_steps` there is no clock. Raises `ValueError` for a
        value out of range and for a missing or unknown option, `ConfigError` for a saved player that is not there or
        does not fit."""
        opponents: dict[str, Any] = AGENTS if role == "host" else HOSTS
        if opponent not in opponents and not re.match(SAVED, opponent):
            raise ValueError(f"opponent={opponent!r}: must be one of {', '.join(opponents)}, or a saved one: logs/NAME")
        if given.get("max_episode_steps") is None:
            given["max_episode_steps"] = _NO_LIMIT
        options = PointGameOptions(**given)
        self.num_envs, self._is_host, self._scale = num_envs, role == "host", scale_observation
        self._game, dimension = PointGame(options), options.dimension
        if opponent not in opponents:
            size = dimension, options.max_num_points
            opponents = {opponent: load_player(opponent, OTHER[role], *size, torch.device("cpu")).player()}
        self._opponent = opponents[opponent]
        self._host: Host = (lambda _, noise: torch.zeros_like(noise).long()) if self._is_host else self._opponent
        self.num_actions = len(subsets(dimension)) if self._is_host else dimension
        # The last position of a game that is truncated for its large coordinates is observed too.
        high, dtype = (1.0, np.float32) if scale_observation else (dimension * MAX_COORDINATE, np.int64)
        points = Box(PADDING, high, (options.max_num_points, dimension), dtype)
        agent_space = Dict({"points": points, "coords": MultiBinary(dimension)})
        self.single_observation_space = points if self._is_host else agent_space
        self.single_action_space = Discrete(self.num_actions)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.state: PointState | None = None

    def reset(self, *, seed: Seed | Sequence[Seed] = None, options: Infos | None = None) -> tuple[Any, Infos]:
        """Stream i takes seed + i, or the i-th of a list of seeds. With `options["reset_mask"]`, bool `[B]`, the other
        streams stay as they are."""
        super().reset(seed=seed if isinstance(seed, int) else None)
        seeds, where = seeds_of(seed, self.num_envs), reset_mask(options or {}, self.num_envs)
        if self.state is None and not where.all():
            raise ResetNeeded("the first reset() must start every stream: leave out options['reset_mask']")
        fresh = where & np.array([self.state is None or each is not None for each in seeds])
        if fresh.any():
            start = self._game.reset(stream_seeds(np_random(each)[1] for each in seeds))
            begun, chosen = self._game.ask(self._host, start), torch.from_numpy(fresh)
            pairs = zip(begun, self.state or begun, strict=True)
            self.state = PointState(*(torch.where(chosen.view(-1, *[1] * (a.ndim - 1)), a, b) for a, b in pairs))
        self.state = self._game.next_game(self._host, started(self.state), torch.from_numpy(where & ~fresh))
        return self._observe(self.state), self._infos(self.state, where)

    def step(self, actions: Ints) -> tuple[Any, NDArray[Any], NDArray[Any], NDArray[Any], Infos]:
        obs, reward, terminated, truncated, infos = self.move(actions)
        done, after = terminated | truncated, started(self.state)
        if done.any():
            shown = [*iterate(self.observation_space, obs)]
            ended = final_infos(done, (shown[i] for i in done.nonzero()[0]), self._infos(after, done))
            self.state = self._game.next_game(self._host, after, torch.from_numpy(done))
            obs, infos = self._observe(self.state), self._infos(self.state, np.ones(self.num_envs, bool)) | ended
        return obs, reward, terminated, truncated, infos

    def move(self, actions: Ints) -> tuple[Any, NDArray[Any], NDArray[Any], NDArray[Any], Infos]:
        """Step without auto-reset."""
        state, actions = started(self.state), np.asarray(actions)
        if not self.action_space.contains(actions):
            raise InvalidAction(f"{actions=}: must be {self.num_envs} integers >= 0 and < {self.num_actions}")
        subset, axis = state.subset, torch.from_numpy(actions).long()
        if self._is_host:
            subset, axis = axis, self._game.answer(self._opponent, state, axis)
        after, terminated, truncated = self._game.step(state, subset, axis)
        self.state = after = self._game.ask(self._host, after)
        reward = terminated.double().numpy() * (1 if self._is_host else -1)
        infos = self._infos(after, np.ones(self.num_envs, bool))
        return self._observe(after), reward, terminated.numpy(), truncated.numpy(), infos

    def _observe(self, state: PointState) -> Any:
        """Observations of all streams, new arrays `[B, ...]`."""
        points = canonical(state.points)
        shown = (rescale(points).float() if self._scale else points).numpy()
        return shown if self._is_host else {"coords": self._mask(state), "points": shown}

    def _mask(self, state: PointState) -> NDArray[np.int8]:
        """1 for each legal action, `[B, A]`; the agent has none where the game is over."""
        if self._is_host:
            return np.ones((self.num_envs, self.num_actions), np.int8)
        legal = subset_of(state.subset, self.num_actions) & ~is_over(state.points)[:, None]
        return legal.numpy().astype(np.int8)

    def _infos(self, state: PointState, where: NDArray[np.bool_]) -> Infos:
        """Infos in the form of Gymnasium's own vector environments: zeros unless `where` `[B]` is true."""
        values = {"action_mask": self._mask(state) * where[:, None], "timestep": state.timestep.numpy() * where}
        return values | {f"_{name}": where.copy() for name in values}


class SinglePointGame(Env[Any, np.int64]):
    """One stream, with the options of `BatchedPointGame`."""

    metadata: Infos = {"render_modes": []}

    def __init__(self, **given: Any) -> None:
        self._games = BatchedPointGame(1, **given)
        self.observation_space = self._games.single_observation_space
        self.action_space = self._games.single_action_space
        self._is_on = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Infos]:
        super().reset(seed=seed)
        begins = seed is not None or self._games.state is None
        self._is_on = True
        return self._first(*self._games.reset(seed=[self.np_random_seed] if begins else None))

    def step(self, action: np.int64) -> tuple[Any, float, bool, bool, Infos]:
        if not self._is_on:
            raise ResetNeeded("no game is on: call reset() before step()")
        obs, reward, terminated, truncated, infos = self._games.move(np.array([action]))
        self._is_on = not (terminated[0] or truncated[0])
        obs, info = self._first(obs, infos)
        return obs, float(reward[0]), bool(terminated[0]), bool(truncated[0]), info

    def _first(self, obs: Any, infos: Infos) -> tuple[Any, Infos]:
        """Observation and info of the only stream."""
        info = {"action_mask": infos["action_mask"][0], "timestep": int(infos["timestep"][0])}
        return next(iterate(self._games.observation_space, obs)), info


def make_single(**given: Any) -> SinglePointGame:
    """Entry point of `gymnasium.make`, with the arguments of `BatchedPointGame`."""
    return _made(SinglePointGame, given)


def make_batched(num_envs: int = 1, **given: Any) -> BatchedPointGame:
    """Entry point of `gymnasium.make_vec`, with the arguments of `BatchedPointGame`."""
    return _made(BatchedPointGame, {"num_envs": index(num_envs), **given})


def _made(kind: Callable[..., Made], given: Infos) -> Made:
    """Environment of this `kind`. Raises `ValueError` with the argument, its value and what is allowed."""
    try:
        return kind(**given)
    except ValidationError as error:
        first = error.errors()[0]
        name = first["loc"][-1]
        value = f"={given[name]!r}" if name in given else ""  # it may be missing
        raise ValueError(f"{name}{value}: {first['msg'].replace('Input should be', 'must be')}") from error
