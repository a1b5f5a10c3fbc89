"""Tables of many learners as one: which row belongs to a stream's learner and its observation."""

import torch
from torch import Tensor


class LearnerRows:
    """Rows of a table `[L * S, ...]` of L learners over S observations, for B streams, learner by learner."""

    def __init__(self, num_learners: int, num_obs: int, device: torch.device) -> None:
        self._first = torch.arange(num_learners, device=device) * num_obs  # [L]
        self._of_streams: dict[int, Tensor] = {}

    def of(self, obs: Tensor) -> Tensor:
        """The rows of observations `[..., B]`. Raises `ValueError` unless B is a multiple of L."""
        num_streams, num_learners = obs.shape[-1], len(self._first)
        if num_streams not in self._of_streams:
            if num_streams % num_learners:
                raise ValueError(f"{num_streams} streams cannot be dealt out evenly to {num_learners} learners")
            self._of_streams[num_streams] = self._first.repeat_interleave(num_streams // num_learners)
        return self._of_streams[num_streams] + obs
