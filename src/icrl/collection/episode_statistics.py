"""Running averages over the latest episodes of every learner."""

from typing import Any

import numpy as np
import torch

from icrl.contracts import Rollout
from icrl.envs.rollout import OpenEpisodes, finished_episodes, numbered
from icrl.spaces import EnvSpec

MOST_PENDING = 100  # unrolls in memory before they are added to the averages
_MEASURES = ("return", "success", "episode_length")


class EpisodeStatistics:
    """Return, success and length of the latest `window` episodes of every stream, averaged over the streams of each
    learner."""

    def __init__(self, spec: EnvSpec, num_learners: int, num_envs: int, window: int = 10) -> None:
        num_streams, self._num_learners, self._spec = num_learners * num_envs, num_learners, spec
        self._last = np.full((len(_MEASURES), num_streams, window), np.nan)
        self._count, self._open = np.zeros(num_streams, np.int64), OpenEpisodes.none(num_streams)
        self._pending: list[Rollout] = []

    def add(self, transitions: Rollout) -> None:
        """Add the episodes that end in `[T, B]` transitions; processing may wait until the next `summary`."""
        self._pending.append(transitions)
        if len(self._pending) >= MOST_PENDING:
            self._take_in()

    def summary(self) -> dict[str, np.ndarray]:
        """`return`, `success` and `episode_length` per learner, `[L]`; NaN if no episode has ended yet."""
        self._take_in()
        last = self._last.reshape(len(_MEASURES), self._num_learners, -1)
        ended = (~np.isnan(last[0])).sum(axis=-1)  # [L]
        means = np.where(ended > 0, np.nansum(last, axis=-1) / np.maximum(ended, 1), np.nan)
        return dict(zip(_MEASURES, means, strict=True))

    def state_dict(self) -> dict[str, Any]:
        self._take_in()
        arrays = (self._last, self._count, *self._open)
        return {"arrays": [torch.from_numpy(array.copy()) for array in arrays]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        last, self._count, *still_open = (array.cpu().numpy().copy() for array in state["arrays"])
        self._open, size, before = OpenEpisodes(*still_open), self._last.shape[-1], last.shape[-1]
        newest = self._count[:, None] - 1 - np.arange(min(size, before))  # numbers of episodes, in windows of any size
        stream, place = np.nonzero(newest >= 0)
        number = newest[stream, place]
        self._last[:] = np.nan
        self._last[:, stream, number % size] = last[:, stream, number % before]

    def _take_in(self) -> None:
        if not self._pending:
            return
        transitions = Rollout.joined(self._pending)
        self._pending.clear()
        episodes, self._open = finished_episodes(transitions, self._open, self._spec)
        slot = (self._count[episodes.stream] + numbered(episodes.stream)) % self._last.shape[-1]
        self._last[:, episodes.stream, slot] = (episodes.returns, episodes.success, episodes.length)
        np.add.at(self._count, episodes.stream, 1)
