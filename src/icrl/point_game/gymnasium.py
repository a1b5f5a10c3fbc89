"""The polyhedra game behind Gymnasium's interfaces: the learner plays one side against a fixed player on the other.

`BatchedPointGame` stream i after `reset(seed=s)` is `SinglePointGame` after `reset(seed=s + i)`, step by step. A seed
decides all that is random in a stream. A reset without a seed starts the next game of the same stream.
`info["action_mask"]` tells which actions are legal, `info["timestep"]` counts the moves since the reset. B streams.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import Env
from gymnasium.error import InvalidAction, ResetNeeded
from gymnasium.spaces import Discrete
from gymnasium.utils.seeding import np_random
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray
from torch import Tensor

from icrl.envs.gym.as_gymnasium import final_infos, reset_mask, seeds_of, started, stream_seeds
from icrl.point_game.rollout import PointGameOptions, PointState, Turn
from icrl.point_game.sides import Side, make_side

Ints = NDArray[np.int64]
Infos = dict[str, Any]
_NO_LIMIT = 2**62


class SinglePointGame(Env[Any, np.int64]):
    """One stream of `side`."""

    metadata: Infos = {"render_modes": []}

    def __init__(self, side: Side) -> None:
        self._side = side
        self.observation_space = side.observation_space
        self.action_space = Discrete(side.num_actions)
        self._turn: Turn | None = None
        self._ended = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Infos]:
        super().reset(seed=seed)
        if seed is not None or self._turn is None:
            self._turn = self._side.begin(stream_seeds([self.np_random_seed]))
        else:
            self._turn = self._side.next_turn(self._turn, torch.tensor([True]))
        self._ended = False
        return self._show(self._turn)

    def step(self, action: np.int64) -> tuple[Any, float, bool, bool, Infos]:
        if self._turn is None or self._ended:
            raise ResetNeeded("no game is on: call reset() before step()")
        if not self.action_space.contains(action):
            raise InvalidAction(f"action={action!r}: must be an integer >= 0 and < {self._side.num_actions}")
        self._turn, ends = self._side.move(self._turn, torch.tensor([int(action)]))
        terminated, truncated = bool(ends.terminated), bool(ends.truncated)
        self._ended = terminated or truncated
        obs, info = self._show(self._turn)
        return obs, float(self._side.reward(ends)[0]), terminated, truncated, info

    def _show(self, turn: Turn) -> tuple[Any, Infos]:
        info = {"action_mask": self._side.mask(turn)[0], "timestep": int(turn.state.timestep)}
        return _of_stream(self._side.observe(turn), 0), info


class BatchedPointGame(VectorEnv[Any, Ints, NDArray[Any]]):
    """B streams of `side` stepped as one batch, with auto-reset in the same step."""

    metadata: Infos = {**SinglePointGame.metadata, "autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(self, side: Side, num_envs: int) -> None:
        self.num_envs = num_envs
        self._side = side
        self.single_observation_space = side.observation_space
        self.single_action_space = Discrete(side.num_actions)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._turn: Turn | None = None

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, Infos]:
        """Stream i takes seed + i, or the i-th of a list of seeds. With `options["reset_mask"]`, bool `[B]`, the other
        streams stay as they are."""
        super().reset(seed=seed if isinstance(seed, int) else None)
        seeds, where = seeds_of(seed, self.num_envs), reset_mask(options or {}, self.num_envs)
        if self._turn is None and not where.all():
            raise ResetNeeded("the first reset() must start every stream: leave out options['reset_mask']")
        fresh = where & np.array([self._turn is None or each is not None for each in seeds])
        turn = self._turn
        if fresh.any():
            begun = self._side.begin(stream_seeds(np_random(each)[1] for each in seeds))
            turn = begun if turn is None else _where(torch.from_numpy(fresh), begun, turn)
        self._turn = self._side.next_turn(started(turn), torch.from_numpy(where & ~fresh))
        return self._side.observe(self._turn), self._infos(self._turn, where)

    def step(self, actions: Ints) -> tuple[Any, NDArray[Any], NDArray[Any], NDArray[Any], Infos]:
        turn = started(self._turn)
        actions = np.asarray(actions)
        if not self.action_space.contains(actions):
            raise InvalidAction(
                f"actions={actions!r}: must be {self.num_envs} integers >= 0 and < {self._side.num_actions}"
            )
        after, ends = self._side.move(turn, torch.from_numpy(actions).long())
        terminated, truncated = ends.terminated.numpy(), ends.truncated.numpy()
        done = terminated | truncated
        self._turn = self._side.next_turn(after, torch.from_numpy(done))
        infos = self._infos(self._turn, np.ones(self.num_envs, bool))
        if done.any():
            infos |= self._final_infos(done, after)
        return self._side.observe(self._turn), self._side.reward(ends), terminated, truncated, infos

    def _infos(self, turn: Turn, where: NDArray[np.bool_]) -> Infos:
        """As Gymnasium's own vector environments tell them: of the streams `where` `[B]` is true, else zeros."""
        return {
            "action_mask": self._side.mask(turn) * where[:, None],
            "_action_mask": where.copy(),
            "timestep": turn.state.timestep.numpy() * where,
            "_timestep": where.copy(),
        }

    def _final_infos(self, done: NDArray[np.bool_], after: Turn) -> Infos:
        shown = self._side.observe(after)
        last_obs = (_of_stream(shown, stream) for stream in done.nonzero()[0].tolist())
        return final_infos(done, last_obs, self._infos(after, done))


def make_single(*, max_episode_steps: int | None = None, **given: Any) -> SinglePointGame:
    """The learner's side `role` (host or agent) against `opponent`, a fixed player of the other side, with
    `scale_observation` and the options of the game. `max_episode_steps=None` leaves the clock to a `TimeLimit` around
    it. Raises `ValueError` for what is out of range, `TypeError` for what is missing or unknown."""
    return SinglePointGame(_side(max_episode_steps, **given))


def make_batched(num_envs: int = 1, *, max_episode_steps: int | None = None, **given: Any) -> BatchedPointGame:
    """As `make_single`."""
    if num_envs < 1:
        raise ValueError(f"num_envs={num_envs}: must be an int >= 1")
    return BatchedPointGame(_side(max_episode_steps, **given), num_envs)


def _side(max_episode_steps: int | None, *, role: str, opponent: str, scale_observation: bool, **options: Any) -> Side:
    limit = _NO_LIMIT if max_episode_steps is None else max_episode_steps
    return make_side(role, opponent, scale_observation, PointGameOptions(max_episode_steps=limit, **options))


def _of_stream(obs: Any, stream: int) -> Any:
    """The observation of one stream out of those of all."""
    if isinstance(obs, dict):
        return {key: value[stream] for key, value in obs.items()}
    return obs[stream]


def _where(condition: Tensor, turn: Turn, other: Turn) -> Turn:
    """Streams of `turn` where `condition` `[B]` is true, else those of `other`."""
    points = torch.where(condition[:, None, None], turn.state.points, other.state.points)
    seed, episode, timestep, subset = (
        torch.where(condition, a, b)
        for a, b in zip((*turn.state[1:], turn.subset), (*other.state[1:], other.subset), strict=True)
    )
    return Turn(PointState(points, seed, episode, timestep), subset)
