"""Running averages of what the agents of stage one do."""

from typing import Any

import numpy as np
import torch

from src.contracts import Rollout
from src.envs.episodes import OpenEpisodes, finished_episodes, numbered


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

    def state_dict(self) -> dict[str, Any]:
        arrays = (self._returns, self._lengths, self._count, *self._open)
        return {"arrays": [torch.from_numpy(array.copy()) for array in arrays]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        arrays = [array.cpu().numpy().copy() for array in state["arrays"]]
        self._returns, self._lengths, self._count, *still_open = arrays
        self._open = OpenEpisodes(*still_open)
