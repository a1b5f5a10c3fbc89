"""What sources that learn action values share: epsilon-greedy acting on a table of them, and what an update tells.

T steps, L learners, B streams or windows (learner by learner), S observations, A actions.
"""

import torch
from torch import Tensor

from icrl.config.schedules import make_schedule
from icrl.config.training_schema import DQNConfig, QLearningConfig
from icrl.contracts import EnvSpec, Step
from icrl.sources.learners import Learners
from icrl.sources.rows import LearnerRows


class ActionValues(Learners):
    """Epsilon follows a schedule. Subclasses keep `_values` and give `update`."""

    _values: Tensor  # [L * S, A]

    def __init__(
        self, config: QLearningConfig | DQNConfig, spec: EnvSpec, num_learners: int, device: torch.device
    ) -> None:
        super().__init__(num_learners)
        self._discount = config.discount
        self._learning_rate, self._epsilon = make_schedule(config.learning_rate), make_schedule(config.epsilon)
        self._reward_values = torch.tensor(spec.reward_values, device=device)
        self._rows = LearnerRows(num_learners, spec.num_obs, device)

    def action_probabilities(self, step: Step) -> Tensor:
        """epsilon / A + (1 - epsilon) / (number of best actions) for each best action, `[B, A]`."""
        values = self._values.detach()[self._rows.of(step.obs)]
        best = (values == values.amax(-1, keepdim=True)).float()
        epsilon = self._epsilon(self.clock)
        return epsilon / values.shape[-1] + (1 - epsilon) * best / best.sum(-1, keepdim=True)

    def outputs(self) -> dict[str, Tensor]:
        """What the learners know of every observation."""
        return {"q_values": self._values.detach()}

    def _metrics(self, error: Tensor, row: Tensor) -> dict[str, Tensor]:
        """`[L]` each, from the TD errors and the rows of the observations, `[T, B]` each, before an update."""
        return {
            "td_error": self._per_learner(error.abs()),
            "value": self._per_learner(self._values.detach()[row].amax(-1)),
            "epsilon": torch.full((self.num_learners,), self._epsilon(self.clock), device=error.device),
        }
