"""What sources that learn action values share: epsilon-greedy acting on a table of them, and what an update tells.

T steps, L learners, B streams or windows (learner by learner), S observations, A actions.
"""

import torch
from torch import Tensor

from src.contracts import EnvSpec, Rollout, Step
from src.randomness import cumulative, draw
from src.schedules import Clock, make_schedule
from src.sources.rows import LearnerRows
from src.training_schema import DQNConfig, QLearningConfig


class ActionValues:
    """L learners and, as a `Policy`, what they do in their B streams; the carry is empty. Nothing works before the
    first `set_clock`, which epsilon is a function of. Subclasses keep `_values` and give `update`."""

    _values: Tensor  # [L * S, A]

    def __init__(
        self, config: QLearningConfig | DQNConfig, spec: EnvSpec, num_learners: int, device: torch.device
    ) -> None:
        self.num_learners = num_learners
        self._discount = config.discount
        self._learning_rate, self._epsilon = make_schedule(config.learning_rate), make_schedule(config.epsilon)
        self._reward_values = torch.tensor(spec.reward_values, device=device)
        self._rows = LearnerRows(num_learners, spec.num_obs, device)

    def set_clock(self, clock: Clock) -> None:
        """Progress of the run, which rates are functions of."""
        self._clock = clock

    def initial_carry(self, num_streams: int) -> tuple[()]:
        if num_streams % self.num_learners:
            raise ValueError(f"{num_streams} streams for {self.num_learners} learners")
        return ()

    def act(self, carry: tuple[()], step: Step, noise: Tensor) -> tuple[Tensor, tuple[()]]:
        """Sample from `action_probabilities` by inverting the cumulative distribution at `noise`."""
        return draw(cumulative(self.action_probabilities(step)), noise), carry

    def action_probabilities(self, step: Step) -> Tensor:
        """epsilon / A + (1 - epsilon) / (number of best actions) for each best action, `[B, A]`."""
        values = self._values.detach()[self._rows.of(step.obs)]
        best = (values == values.amax(-1, keepdim=True)).float()
        epsilon = self._epsilon(self._clock)
        return epsilon / values.shape[-1] + (1 - epsilon) * best / best.sum(-1, keepdim=True)

    def targets(self, rollout: Rollout) -> dict[str, Tensor]:
        """Nothing: what a transition teaches depends on what is known when it is learned from."""
        return {}

    def outputs(self) -> dict[str, Tensor]:
        """What the learners know of every observation."""
        return {"q_values": self._values.detach()}

    def _metrics(self, error: Tensor, row: Tensor) -> dict[str, Tensor]:
        """`[L]` each, from the TD errors and the rows of the observations, `[T, B]` each, before an update."""
        return {
            "td_error": self._per_learner(error.abs()),
            "value": self._per_learner(self._values.detach()[row].amax(-1)),
            "epsilon": torch.full((self.num_learners,), self._epsilon(self._clock), device=error.device),
        }

    def _per_learner(self, samples: Tensor) -> Tensor:
        """Mean over each learner's samples, `[T, B] -> [L]`."""
        return samples.unflatten(1, (self.num_learners, -1)).mean(dim=(0, 2))
