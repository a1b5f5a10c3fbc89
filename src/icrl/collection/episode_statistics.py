"""Running averages over the latest episodes of the agents of stage one."""

from typing import Any

import numpy as np
import torch

from icrl.contracts import EnvSpec, Rollout
from icrl.envs.rollout import OpenEpisodes, finished_episodes, numbered

MOST_PENDING = 100  # unrolls in memory before they are added to the averages
_MEASURES = ("return", "success", "episode_length")


class EpisodeStatistics:
    """Return, success and length of the latest episodes of every stream, averaged over the streams of each learner."""

    def __init__(self, spec: EnvSpec, num_learners: int, num_envs: int, window: int = 10) -> None:
        num_streams = num_learners * num_envs
        self._spec = spec
        self._shape = (len(_MEASURES), num_learners, num_envs * window)
        self._last = np.full((len(_MEASURES), num_streams, window), np.nan)
        self._count = np.zeros(num_streams, np.int64)
        self._open = OpenEpisodes.none(num_streams)
        self._pending: list[Rollout] = []

    def add(self, transitions: Rollout) -> None:
        """Add the episodes that end in `[T, B]` transitions; processing may wait until the next `summary`."""
        self._pending.append(transitions)
        if len(self._pending) >= MOST_PENDING:
            self._take_in()

    def summary(self) -> dict[str, np.ndarray]:
        """`return`, `success` and `episode_length` per learner, `[L]`; NaN if no episode has ended yet."""
        self._take_in()
        last = self._last.reshape(self._shape)
        ended = (~np.isnan(last[0])).sum(axis=-1)  # [L]
        means = np.where(ended > 0, np.nansum(last, axis=-1) / np.maximum(ended, 1), np.nan)
        return dict(zip(_MEASURES, means, strict=True))

    def state_dict(self) -> dict[str, Any]:
        self._take_in()
        arrays = (self._last, self._count, *self._open)
        return {"arrays": [torch.from_numpy(array.copy()) for array in arrays]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        arrays = [array.cpu().numpy().copy() for array in state["arrays"]]
        self._last, self._count, *still_open = arrays
        self._open = OpenEpisodes(*still_open)

    def _take_in(self) -> None:
        if not self._pending:
            return
        transitions = Rollout(*(torch.cat(column) for column in zip(*self._pending, strict=True)))
        self._pending = []
        episodes, self._open = finished_episodes(transitions, self._open, self._spec)
        number = self._count[episodes.stream] + numbered(episodes.stream)
        slot = number % self._last.shape[-1]
        self._last[:, episodes.stream, slot] = (episodes.returns, episodes.success, episodes.length)
        np.add.at(self._count, episodes.stream, 1)
