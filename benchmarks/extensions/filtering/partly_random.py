"""A2C of which three learners in ten play at random whatever they learn, for histories with noise.

python -m src.train_agents module=benchmarks/extensions/filtering/partly_random.py source=partly_random
"""

from typing import Any, Literal

import torch
from torch import Tensor

from icrl.contracts import Step
from icrl.envs.policies import uniform_actions
from icrl.sources import source
from icrl.sources.a2c import A2C, A2CConfig
from icrl.sources.options import named


class PartlyRandomConfig(A2CConfig):
    name: Literal["partly_random"] = named("partly_random")


@source("partly_random", PartlyRandomConfig)
class PartlyRandom(A2C):
    """Learners 0, 1, 2, 10, 11, 12, ... play at random."""

    def act(self, carry: Any, step: Step, noise: Tensor) -> tuple[Tensor, Any]:
        action, carry = super().act(carry, step, noise)
        learner = torch.arange(len(noise), device=noise.device) // self.config.num_envs
        return torch.where(learner % 10 < 3, uniform_actions(self._spec, step.obs, noise), action), carry
