"""Gymnasium environments of the polyhedra game: the learner plays one side against a fixed player on the other.

The host sees the points `[N, n]` and names a subset by its number. The agent sees the points and the host's subset, 0
or 1 for each coordinate `[n]`, and names a coordinate of it. Points are in canonical order, padded with -1. They are
exact int64 numbers, or float32 numbers divided by the largest coordinate of the position.

`BatchedPointGame` stream i after `reset(seed=s)` equals `SinglePointGame` after `reset(seed=s + i)`, step by step. A
stream is a function of its seed and its actions. A reset without a seed starts the next game of the same stream.
`info["action_mask"]` marks the legal actions, `info["timestep"]` counts the moves since the reset. B streams.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import Env
from gymnasium.error import InvalidAction, ResetNeeded
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary
from gymnasium.utils.seeding import np_random
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray
from torch import Tensor

from icrl.envs.gym.as_gymnasium import final_infos, reset_mask, seeds_of, started, stream_seeds
from icrl.point_game.fixed_players import AGENTS, HOSTS
from icrl.point_game.rollout import MAX_COORDINATE, PointGame, PointGameOptions, PointState, host_reward
from icrl.point_game.rules import PADDING, canonical, legal_axes, rescale, subset_of, subsets

Ints = NDArray[np.int64]
Infos = dict[str, Any]
_NO_LIMIT = 2**62


class BatchedPointGame(VectorEnv[Any, Ints, NDArray[Any]]):
    """B streams of one side stepped as one batch, with auto-reset in the same step; `opponent` plays the other side.

    As host the learner chooses the subset itself, so the subset of the state is 0."""

    metadata: Infos = {"render_modes": [], "autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(
        self,
        num_envs: int = 1,
        *,
        role: str,
        opponent: str,
        scale_observation: bool,
        max_episode_steps: int | None = None,
        **given: Any,
    ) -> None:
        """`given` are the other options of the game; without `max_episode_steps` there is no clock. Raises `ValueError`
        for a value out of range, `TypeError` for a missing or unknown option."""
        if num_envs < 1:
            raise ValueError(f"num_envs={num_envs}: must be an int >= 1")
        if type(scale_observation) is not bool:
            raise ValueError(f"scale_observation={scale_observation!r}: must be True or False")
        if role not in ("host", "agent"):
            raise ValueError(f"role={role!r}: must be host or agent")
        opponents: dict[str, Any] = AGENTS if role == "host" else HOSTS
        if opponent not in opponents:
            raise ValueError(f"opponent={opponent!r}: must be one of {', '.join(opponents)}")
        self.num_envs, self._is_host, self._scale = num_envs, role == "host", scale_observation
        self._opponent, limit = opponents[opponent], _NO_LIMIT if max_episode_steps is None else max_episode_steps
        options = PointGameOptions(max_episode_steps=limit, **given)
        self._game, shape = PointGame(options), (options.max_num_points, options.dimension)
        self.num_actions = len(subsets(options.dimension)) if self._is_host else options.dimension
        # The last position of a game that is truncated for its large coordinates is observed too.
        high, dtype = (1.0, np.float32) if scale_observation else (options.dimension * MAX_COORDINATE, np.int64)
        points = Box(PADDING, high, shape, dtype)
        agent_space = Dict({"points": points, "coords": MultiBinary(options.dimension)})
        self.single_observation_space = points if self._is_host else agent_space
        self.single_action_space = Discrete(self.num_actions)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._state: PointState | None = None

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, Infos]:
        """Stream i takes seed + i, or the i-th of a list of seeds. With `options["reset_mask"]`, bool `[B]`, the other
        streams stay as they are."""
        super().reset(seed=seed if isinstance(seed, int) else None)
        seeds, where = seeds_of(seed, self.num_envs), reset_mask(options or {}, self.num_envs)
        if self._state is None and not where.all():
            raise ResetNeeded("the first reset() must start every stream: leave out options['reset_mask']")
        fresh = where & np.array([self._state is None or each is not None for each in seeds])
        state = self._state
        if fresh.any():
            start = self._game.reset(stream_seeds(np_random(each)[1] for each in seeds))
            begun = self._game.ask(self._host, start)
            state = begun if state is None else _where(torch.from_numpy(fresh), begun, state)
        self._state = self._game.next_game(self._host, started(state), torch.from_numpy(where & ~fresh))
        return self._observe(self._state), self._infos(self._state, where)

    def step(self, actions: Ints) -> tuple[Any, NDArray[Any], NDArray[Any], NDArray[Any], Infos]:
        state, actions = started(self._state), np.asarray(actions)
        if not self.action_space.contains(actions):
            limits = f"{self.num_envs} integers >= 0 and < {self.num_actions}"
            raise InvalidAction(f"actions={actions!r}: must be {limits}")
        subset, axis = state.subset, torch.from_numpy(actions).long()
        if self._is_host:
            subset, axis = axis, self._game.answer(self._opponent, state, axis)
        after, terminated, truncated = self._game.step(state, subset, axis)
        after = self._game.ask(self._host, after)
        self._state = self._game.next_game(self._host, after, terminated | truncated)
        infos = self._infos(self._state, np.ones(self.num_envs, bool))
        done = (terminated | truncated).numpy()
        if done.any():
            shown = self._observe(after)
            last_obs = (_of_stream(shown, stream) for stream in done.nonzero()[0].tolist())
            infos |= final_infos(done, last_obs, self._infos(after, done))
        reward = host_reward(terminated).double().numpy() * (1 if self._is_host else -1)
        return self._observe(self._state), reward, terminated.numpy(), truncated.numpy(), infos

    def _host(self, points: Tensor, noise: Tensor) -> Tensor:
        return torch.zeros(len(points), dtype=torch.int64) if self._is_host else self._opponent(points, noise)

    def _observe(self, state: PointState) -> Any:
        """Observations of all streams, new arrays `[B, ...]`."""
        points = canonical(state.points)
        shown = (rescale(points).float() if self._scale else points).numpy()
        return shown if self._is_host else {"coords": self._mask(state), "points": shown}

    def _mask(self, state: PointState) -> NDArray[np.int8]:
        """1 for each legal action, `[B, A]`; the agent has none where the game is over."""
        if self._is_host:
            return np.ones((self.num_envs, self.num_actions), np.int8)
        return legal_axes(state.points, subset_of(state.subset, self.num_actions)).numpy().astype(np.int8)

    def _infos(self, state: PointState, where: NDArray[np.bool_]) -> Infos:
        """Infos in the form of Gymnasium's own vector environments: zeros unless `where` `[B]` is true."""
        return {
            "action_mask": self._mask(state) * where[:, None],
            "_action_mask": where.copy(),
            "timestep": state.timestep.numpy() * where,
            "_timestep": where.copy(),
        }


class SinglePointGame(Env[Any, np.int64]):
    """One stream, with the options of `BatchedPointGame`."""

    metadata: Infos = {"render_modes": []}

    def __init__(self, **given: Any) -> None:
        self._games = BatchedPointGame(1, **given)
        self.observation_space, self.action_space = (
            self._games.single_observation_space,
            self._games.single_action_space,
        )
        self._shown: tuple[Any, Infos] | None = None  # observation and infos of the game that is on
        self._ended = True

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Infos]:
        super().reset(seed=seed)
        if seed is not None or self._shown is None:
            self._shown = self._games.reset(seed=[self.np_random_seed])
        elif not self._ended:  # else the next game has started already
            self._shown = self._games.reset()
        self._ended = False
        return _of_stream(self._shown[0], 0), _info(self._shown[1])

    def step(self, action: np.int64) -> tuple[Any, float, bool, bool, Infos]:
        if self._ended:
            raise ResetNeeded("no game is on: call reset() before step()")
        if not self.action_space.contains(action):
            raise InvalidAction(f"action={action!r}: must be an integer >= 0 and < {self._games.num_actions}")
        obs, reward, terminated, truncated, infos = self._games.step(np.array([action]))
        self._shown, self._ended = (obs, infos), bool(terminated[0] or truncated[0])
        last, info = (infos["final_obs"][0], infos["final_info"]) if self._ended else (_of_stream(obs, 0), infos)
        return last, float(reward[0]), bool(terminated[0]), bool(truncated[0]), _info(info)


make_single, make_batched = SinglePointGame, BatchedPointGame  # entry points in Gymnasium's registry


def _info(infos: Infos) -> Infos:
    """Infos of a single stream."""
    return {"action_mask": infos["action_mask"][0], "timestep": int(infos["timestep"][0])}


def _of_stream(obs: Any, stream: int) -> Any:
    """Observation of one stream among those of all."""
    return {key: value[stream] for key, value in obs.items()} if isinstance(obs, dict) else obs[stream]


def _where(condition: Tensor, state: PointState, other: PointState) -> PointState:
    """Streams of `state` where `condition` `[B]` is true, else those of `other`."""
    points = torch.where(condition[:, None, None], state.points, other.points)
    return PointState(points, *(torch.where(condition, a, b) for a, b in zip(state[1:], other[1:], strict=True)))
