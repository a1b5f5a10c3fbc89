r"""A training objective and an encoder of one's own.

python -m src.pipeline experiment=quick module=examples/my_model.py objective=confidence_penalty \
  model.obs_encoding=waves
"""

import math
from typing import Any, Literal

import torch
from torch import Tensor, nn

import icrl
from icrl.config.options import option
from icrl.contracts import Batch
from icrl.nn.heads import Head
from icrl.objectives.imitation import AlgorithmDistillation, ObjectiveConfig
from icrl.spaces import EnvSpec

NUM_WAVES = 16


class ConfidencePenaltyConfig(ObjectiveConfig):
    name: Literal["confidence_penalty"] = option("confidence_penalty", "imitation with a penalty on confidence")
    strength: float = option(0.01, "weight of the penalty", ge=0)


@icrl.objective("confidence_penalty", ConfidencePenaltyConfig)
class ConfidencePenalty(AlgorithmDistillation):
    """Imitation of Discrete actions that keeps the policy pi uncertain (Pereyra et al., 2017, arXiv 1701.06548). The
    loss is that of algorithm distillation minus strength * mean entropy of pi."""

    def __init__(self, config: Any, spec: EnvSpec, head: Head | None = None) -> None:
        super().__init__(config, spec, head)
        self.weights = {"imitation": 1.0, "penalty": config.strength}

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        logits = self.logits(model, batch)
        terms, metrics = super().__call__(lambda _: logits, batch)
        entropy = torch.distributions.Categorical(logits=logits).entropy().mean()
        return terms | {"penalty": -entropy}, metrics | {"entropy": entropy.detach()}


@icrl.encoder("waves")
class Waves(nn.Module):
    """Discrete observations x in [0, S) as cosines, cos(pi k x / S) for k = 1 ... 16, and a linear layer on them."""

    frequency: Tensor

    def __init__(self, spec: EnvSpec, width: int) -> None:
        super().__init__()
        frequency = torch.arange(1, NUM_WAVES + 1) * math.pi / spec.num_obs
        self.register_buffer("frequency", frequency, persistent=False)
        self.linear = nn.Linear(NUM_WAVES, width)

    def forward(self, obs: Tensor) -> Tensor:
        """`[B, T] -> [B, T, D]`."""
        return self.linear((obs[..., None] * self.frequency).cos())
