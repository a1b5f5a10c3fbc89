"""A source of one's own: tables of expected SARSA (van Seijen et al., 2009), many learners at once.

python -m src.pipeline module=examples/my_source.py source=expected_sarsa env.size=5 source.num_envs=1
"""

from typing import Any, Literal

import torch
from torch import Tensor

from icrl.config.options import option
from icrl.contracts import Sample, Step, UpdateResult
from icrl.sources import source
from icrl.sources.learners import Learner, table_rows
from icrl.sources.options import SourceConfig, named
from icrl.spaces import EnvSpec


class ExpectedSarsaConfig(SourceConfig):
    name: Literal["expected_sarsa"] = named("expected_sarsa")
    step_size: float = option(0.5, "step size towards the target", gt=0, le=1)
    epsilon: float = option(0.1, "probability of a uniformly random action", ge=0, le=1)


@source("expected_sarsa", ExpectedSarsaConfig)
class ExpectedSarsa(Learner):
    """Q(s, a) moves towards r + discount * sum_a' pi(a' | s') Q(s', a'), without the second term at the end of a
    task."""

    saved = ("values",)

    def __init__(self, config: Any, spec: EnvSpec, seeds: Tensor, device: torch.device) -> None:
        super().__init__(config, spec, seeds, device)
        self.values = torch.zeros(len(seeds) * spec.num_obs, spec.num_actions, device=device)  # [L * S, A]
        self._rows = table_rows(len(seeds), spec.num_obs, device)

    def _policy(self, values: Tensor) -> Tensor:
        best = (values == values.amax(-1, keepdim=True)).float()
        epsilon = self.config.epsilon
        return epsilon / values.shape[-1] + (1 - epsilon) * best / best.sum(-1, keepdim=True)

    def action_probabilities(self, step: Step) -> Tensor:
        return self._policy(self.values[self._rows(step.obs)])

    def update(self, sample: Sample) -> UpdateResult:
        errors = []
        for step in zip(*sample.rollout, strict=True):
            obs, action, reward, next_obs, _, terminated, *_ = step
            there = self.values[self._rows(next_obs)]
            target = reward + self._discount * (self._policy(there) * there).sum(-1) * ~terminated
            row = self._rows(obs)
            errors.append(target - self.values[row, action])
            self.values.index_put_((row, action), self.config.step_size * errors[-1], accumulate=True)
        return UpdateResult({"td_error": self._per_learner(torch.stack(errors).abs())})
