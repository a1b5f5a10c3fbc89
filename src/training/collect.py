"""The loop of stage one: learners act, learn from what happened, and act on."""

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from src.config import Config
from src.contracts import Carry, Env, Policy, Rollout
from src.envs.base import State
from src.envs.episodes import OpenEpisodes, finished_episodes, numbered
from src.envs.rollout import Streams, rollout, start_streams
from src.envs.tasks import streams_of
from src.randomness import Noise, stream_seeds
from src.sources.a2c import A2C

SOURCES = {"a2c": A2C}


class Learner(Policy[Carry], Protocol[Carry]):
    """A policy that can be improved by its own experience; one object holds many independent learners."""

    def update(self, rollout: Rollout) -> dict[str, Tensor]:
        """One update of every learner on `[T, B]` transitions of their streams; metrics `[learners]`."""
        ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


def collect(
    env: Env[State], learner: Learner[Carry], streams: Streams[State, Carry], noise: Noise, rollout_len: int
) -> Iterator[tuple[Rollout, dict[str, Tensor], Streams[State, Carry]]]:
    """Endlessly: play `rollout_len` steps, learn from them, yield both and where the streams stand."""
    while True:
        transitions, streams = rollout(learner, env, streams, rollout_len, noise)
        yield transitions, learner.update(transitions), streams


def make_learners(
    config: Config, env: Env[State], tasks: Tensor, device: torch.device
) -> tuple[A2C, Streams[State, tuple[()]], Noise]:
    """Fresh learners for `tasks` `[G, task_dim]`, `source.num_learners` of each with `source.num_envs` streams."""
    source = config.source
    num_learners = len(tasks) * source.num_learners
    num_streams = num_learners * source.num_envs
    starts, noise, parameters = (
        stream_seeds(config.seed, n, purpose).to(device)
        for purpose, n in enumerate((num_streams, num_streams, num_learners))
    )
    learner = SOURCES[source.name](source, env.spec, parameters, device)
    streams = start_streams(learner, env, streams_of(tasks, source.num_learners * source.num_envs), starts)
    return learner, streams, Noise(noise)


class EpisodeStatistics:
    """Return and length of the last episodes of every stream, averaged over the streams of each learner."""

    def __init__(self, num_learners: int, num_envs: int, window: int = 10) -> None:
        num_streams = num_learners * num_envs
        self._shape = (num_learners, num_envs * window)
        self._returns = np.full((num_streams, window), np.nan)
        self._lengths = np.full((num_streams, window), np.nan)
        self._count = np.zeros(num_streams, np.int64)
        self._open = OpenEpisodes.none(num_streams)

    def add(self, transitions: Rollout) -> None:
        """Take in the episodes that end in `[T, B]` transitions."""
        episodes, self._open = finished_episodes(transitions, self._open)
        number = self._count[episodes.stream] + numbered(episodes.stream)
        slot = number % self._returns.shape[1]
        self._returns[episodes.stream, slot] = episodes.returns
        self._lengths[episodes.stream, slot] = episodes.length
        np.add.at(self._count, episodes.stream, 1)

    def summary(self) -> dict[str, np.ndarray]:
        """`return`, `success` and `episode_length` per learner, `[L]`; NaN where no episode has ended yet."""
        returns = self._returns.reshape(self._shape)
        lengths = self._lengths.reshape(self._shape)
        won = np.where(np.isnan(returns), np.nan, returns > 0)
        ended = np.maximum((~np.isnan(returns)).sum(axis=1), 1)

        def mean(values: np.ndarray) -> np.ndarray:
            return np.where(np.isnan(values).all(axis=1), np.nan, np.nansum(values, axis=1) / ended)

        return {"return": mean(returns), "success": mean(won), "episode_length": mean(lengths)}
