"""Tabular Q-learning (Watkins, 1989), many learners as one table.

For every transition that an update is given

    target = r + discount * max_a' Q(s', a'),    without the second term where the task ended

from the table as it was before the update. A cell (s, a) of a learner that is met several times, by its environments
or at several steps, moves once, towards the mean of its targets:

    Q(s, a) <- Q(s, a) + learning_rate * (mean target - Q(s, a))

so with one environment and one step it is the rule of the paper, and the order of the transitions does not matter.

T steps, L learners, N environments per learner, B = L * N streams (learner by learner), S observations, A actions.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from src.contracts import EnvSpec, Rollout, Step
from src.randomness import cumulative, draw
from src.schedules import Clock, make_schedule
from src.sources.rows import LearnerRows
from src.training_schema import QLearningConfig


class QLearning:
    """L learners and, as a `Policy`, what they do in their B streams; the carry is empty. Nothing works before the
    first `set_clock`, which epsilon is a function of."""

    def __init__(self, config: QLearningConfig, spec: EnvSpec, seeds: Tensor, device: torch.device) -> None:
        """`seeds` `[L]`: one for each learner; its luck is in the noise alone."""
        self.num_learners = len(seeds)
        self._discount = config.discount
        self._learning_rate, self._epsilon = make_schedule(config.learning_rate), make_schedule(config.epsilon)
        shape = (self.num_learners * spec.num_obs, spec.num_actions)
        self._table = torch.full(shape, config.initial_value, device=device)  # [L * S, A]
        self._rows = LearnerRows(self.num_learners, spec.num_obs, device)

    def set_clock(self, clock: Clock) -> None:
        """Progress of the run, which rates are functions of."""
        self._clock = clock

    def initial_carry(self, num_streams: int) -> tuple[()]:
        if num_streams % self.num_learners:
            raise ValueError(f"{num_streams} streams for {self.num_learners} learners")
        return ()

    def act(self, carry: tuple[()], step: Step, noise: Tensor) -> tuple[Tensor, tuple[()]]:
        """Sample from `action_probabilities` by inverting the cumulative distribution at `noise`."""
        return draw(cumulative(self.action_probabilities(step.obs)), noise), carry

    def action_probabilities(self, obs: Tensor) -> Tensor:
        """epsilon / A + (1 - epsilon) / (number of best actions) for each best action, `[B] -> [B, A]`."""
        values = self._table[self._rows.of(obs)]
        best = (values == values.amax(-1, keepdim=True)).float()
        epsilon = self._epsilon(self._clock)
        return epsilon / values.shape[-1] + (1 - epsilon) * best / best.sum(-1, keepdim=True)

    def update(self, rollout: Rollout) -> dict[str, Tensor]:
        """One update of every learner on its streams of `rollout` `[T, B]`; metrics are `[L]`."""
        table, row = self._table, self._rows.of(rollout.obs)
        ahead = table[self._rows.of(rollout.next_obs)].amax(-1).masked_fill(rollout.terminated, 0.0)
        cell = row * table.shape[1] + rollout.action
        error = rollout.reward + self._discount * ahead - table.view(-1)[cell]
        metrics = {
            "td_error": self._per_learner(error.abs()),
            "value": self._per_learner(table[row].amax(-1)),
            "epsilon": torch.full((self.num_learners,), self._epsilon(self._clock), device=table.device),
        }
        cells, which, count = cell.unique(return_inverse=True, return_counts=True)
        # In float64 the sum of a cell's few float32 numbers is exact, so that it does not depend on their order.
        total = torch.zeros(len(cells), dtype=torch.float64, device=table.device)
        total.index_add_(0, which.flatten(), error.flatten().double())
        table.view(-1)[cells] += (self._learning_rate(self._clock) * total / count).float()
        return metrics

    def parameters(self) -> Iterator[tuple[str, Tensor]]:
        """The name of the table, and it, `[L, S, A]`."""
        yield "table", self._table.unflatten(0, (self.num_learners, -1))

    def outputs(self) -> dict[str, Tensor]:
        """What the tables say of every observation."""
        return {"q_values": self._table}

    def state_dict(self) -> dict[str, Any]:
        """The clock too, so that restored learners act as the saved ones."""
        return {"table": self._table, "clock": list(self._clock)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._table.copy_(state["table"])
        self._clock = Clock(*state["clock"])

    def _per_learner(self, samples: Tensor) -> Tensor:
        """Mean over each learner's samples, `[T, B] -> [L]`."""
        return samples.unflatten(1, (self.num_learners, -1)).mean(dim=(0, 2))
