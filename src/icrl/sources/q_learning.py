"""Tabular Q-learning (Watkins, 1989), many learners as one table.

The target of a transition is computed from the table before the update:

    target = r + discount * max_a' Q(s', a'),    without the second term where the task ended

A cell (s, a) that several environments or steps of a learner visit moves once, towards the mean of its targets,
weighted as their windows are:

    Q(s, a) <- Q(s, a) + learning_rate * (mean target - Q(s, a))

With one environment and one step this is the rule of the thesis, and the order of transitions does not matter. Weights
count only where several targets meet in a cell, because a table has no gradient that they could scale.
"""

from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch import Tensor

from icrl.config.options import option
from icrl.contracts import EnvSpec, Learned, Sample, Step
from icrl.sources import source
from icrl.sources.learners import Learner, table_rows
from icrl.sources.options import ReplayConfig, Share, falling, named


class QLearningConfig(ReplayConfig):
    name: Literal["q_learning"] = named("q_learning")
    learning_rate: Share = option(0.5, "step size towards the target")
    epsilon: Share = option(falling(0.7), "probability of a uniformly random action")
    initial_value: float = option(0.0, "initial value of Q; one above every possible return makes optimistic explorers")


class ActionValues(Learner):
    """Epsilon-greedy learners. A subclass keeps `_values` and gives `update`."""

    _values: Tensor  # [L * S, A]

    def __init__(self, config: Any, spec: EnvSpec, seeds: Tensor, device: torch.device) -> None:
        super().__init__(config, spec, seeds, device)
        self._rows = table_rows(len(seeds), spec.num_obs, device)

    def action_probabilities(self, step: Step) -> Tensor:
        """epsilon / A + (1 - epsilon) / (number of best actions) for each best action, `[B, A]`."""
        values = self._values.detach()[self._rows(step.obs)]
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


@source("q_learning", QLearningConfig)
class QLearning(ActionValues):
    saved = ("table",)

    def __init__(self, config: QLearningConfig, spec: EnvSpec, seeds: Tensor, device: torch.device) -> None:
        super().__init__(config, spec, seeds, device)
        self.table = torch.full((len(seeds) * spec.num_obs, spec.num_actions), config.initial_value, device=device)
        self.refresh()

    def refresh(self) -> None:
        self._values = self.table

    def update(self, sample: Sample) -> Learned:
        """One update of every learner's table."""
        rollout, table, row = sample.rollout, self._values, self._rows(sample.rollout.obs)
        ahead = table[self._rows(rollout.next_obs)].amax(-1).masked_fill(rollout.terminated, 0.0)
        cell = row * table.shape[1] + rollout.action
        error = self._reward_values[rollout.reward] + self._discount * ahead - table.view(-1)[cell]
        metrics = self._metrics(error, row)
        cells, which = cell.unique(return_inverse=True)
        # In float64 the sums of a cell's few float32 numbers of weight 1 are exact: their order does not matter.
        weight = sample.weight.double().expand_as(error)
        total, mass = torch.zeros(2, len(cells), dtype=torch.float64, device=table.device)
        total.index_add_(0, which.flatten(), (weight * error).flatten())
        mass.index_add_(0, which.flatten(), weight.flatten())
        tiny = torch.finfo(mass.dtype).tiny  # a cell whose targets all have weight 0 does not move
        table.view(-1)[cells] += (self.rate("learning_rate") * total / mass.clamp(min=tiny)).float()
        return Learned(metrics, td_error=error.abs().mean(0))

    def parameters(self) -> Iterator[tuple[str, Tensor]]:
        yield "table", self._values.unflatten(0, (self.num_learners, -1))  # [L, S, A]
