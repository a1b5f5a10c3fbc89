"""Tabular Q-learning (Watkins, 1989), many learners as one table.

For every transition that an update is given

    target = r + discount * max_a' Q(s', a'),    without the second term where the task ended

from the table as it was before the update. A cell (s, a) of a learner that is met several times, by its environments
or at several steps, moves once, towards the mean of its targets, weighted as their windows are:

    Q(s, a) <- Q(s, a) + learning_rate * (mean target - Q(s, a))

so with one environment and one step it is the rule of the paper, and the order of the transitions does not matter. Only
where several targets meet in a cell do weights count: a table has no gradient that they could scale.

T steps, L learners, B streams or windows (learner by learner), S observations, A actions.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from icrl.config.schedules import Clock
from icrl.config.training_schema import QLearningConfig
from icrl.contracts import EnvSpec, Learned, Sample
from icrl.sources.action_values import ActionValues


class QLearning(ActionValues):
    def __init__(self, config: QLearningConfig, spec: EnvSpec, seeds: Tensor, device: torch.device) -> None:
        """`seeds` `[L]`: one for each learner; its luck is in the noise alone."""
        super().__init__(config, spec, len(seeds), device)
        self._values = torch.full((len(seeds) * spec.num_obs, spec.num_actions), config.initial_value, device=device)

    def update(self, sample: Sample) -> Learned:
        """One update of every learner on its windows `[T, B]`; metrics are `[L]`."""
        rollout, table, row = sample.rollout, self._values, self._rows.of(sample.rollout.obs)
        ahead = table[self._rows.of(rollout.next_obs)].amax(-1).masked_fill(rollout.terminated, 0.0)
        cell = row * table.shape[1] + rollout.action
        error = self._reward_values[rollout.reward] + self._discount * ahead - table.view(-1)[cell]
        metrics = self._metrics(error, row)
        cells, which = cell.unique(return_inverse=True)
        # In float64 the sums of a cell's few float32 numbers of weight 1 are exact: their order does not matter.
        weight = sample.weight.double().expand_as(error)
        total, mass = torch.zeros(2, len(cells), dtype=torch.float64, device=table.device)
        total.index_add_(0, which.flatten(), (weight * error).flatten())
        mass.index_add_(0, which.flatten(), weight.flatten())
        nothing = torch.finfo(mass.dtype).tiny  # a cell whose targets all weigh 0 stays where it is
        table.view(-1)[cells] += (self._learning_rate(self.clock) * total / mass.clamp(min=nothing)).float()
        return Learned(metrics, td_error=error.abs().mean(0))

    def parameters(self) -> Iterator[tuple[str, Tensor]]:
        """The name of the table, and it, `[L, S, A]`."""
        yield "table", self._values.unflatten(0, (self.num_learners, -1))

    def state_dict(self) -> dict[str, Any]:
        """The clock too, so that restored learners act as the saved ones."""
        return {"table": self._values, "clock": list(self.clock)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._values.copy_(state["table"])
        self.clock = Clock(*state["clock"])
