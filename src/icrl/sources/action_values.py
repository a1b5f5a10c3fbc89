"""Base of sources that learn action values: epsilon-greedy acting on a table of them, and metrics of an update."""

from typing import Any

import torch
from torch import Tensor

from icrl.contracts import EnvSpec, Step
from icrl.sources.learners import Learner, LearnerRows


class ActionValues(Learner):
    """Epsilon-greedy learners. A subclass keeps `_values` and gives `update`."""

    _values: Tensor  # [L * S, A]

    def __init__(self, config: Any, spec: EnvSpec, seeds: Tensor, device: torch.device) -> None:
        super().__init__(config, spec, seeds, device)
        self._rows = LearnerRows(len(seeds), spec.num_obs, device)

    def action_probabilities(self, step: Step) -> Tensor:
        """epsilon / A + (1 - epsilon) / (number of best actions) for each best action, `[B, A]`."""
        values = self._values.detach()[self._rows.of(step.obs)]
        best = (values == values.amax(-1, keepdim=True)).float()
        epsilon = self.rate("epsilon")
        return epsilon / values.shape[-1] + (1 - epsilon) * best / best.sum(-1, keepdim=True)

    def outputs(self) -> dict[str, Tensor]:
        return {"q_values": self._values.detach()}

    def _metrics(self, error: Tensor, row: Tensor) -> dict[str, Tensor]:
        """`[L]` each, from TD errors and rows of the observations, `[T, B]` each, before an update."""
        return {
            "td_error": self._per_learner(error.abs()),
            "value": self._per_learner(self._values.detach()[row].amax(-1)),
            "epsilon": torch.full((self.num_learners,), self.rate("epsilon"), device=error.device),
        }
