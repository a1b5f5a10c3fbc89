"""Algorithm distillation (Laskin et al., 2022): predict the learning agent's next action at every step of its history.

    loss = - mean over b, t of w_bt log pi(a_t | everything before it in the window, o_t)

with the weights w of the batch (`data/windows.py`) and targets smoothed to 1 - label_smoothing on a_t. The rest is
spread over all actions. If legal actions are known, both pi and the rest are over legal actions only.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from icrl.config.options import Options, option
from icrl.contracts import Batch, EnvSpec
from icrl.nn.gpt import Context, context_of


class ObjectiveConfig(Options):
    name: Literal["ad", "dpt"] = option(
        "ad",
        "ad: predict the source's next action at every step; dpt: the optimal action of a planner that knows the task",
    )
    label_smoothing: float = option(0.0, "probability mass spread over all actions", ge=0, le=0.99)
    weighting: Literal["none", "improvement", "recency"] = option(
        "improvement",
        "weight of each step of a history. none: equal; improvement: proportional to the return-to-go of "
        "its episode, relative to other learners at that age; recency: proportional to its age",
    )
    discount: float = option(0.9, "discount of the return-to-go", ge=0, le=1)
    max_weight: float = option(20.0, "largest weight of a step if weighting is improvement", ge=1, le=1000)


def batch_context(spec: EnvSpec, batch: Batch) -> Context:
    """Context of the windows of a batch."""
    return context_of(spec, batch.obs, batch.action, batch.reward, batch.timestep)


class AlgorithmDistillation:
    """Objective with the equation above."""

    def __init__(self, config: ObjectiveConfig, spec: EnvSpec) -> None:
        self.label_smoothing, self.spec = config.label_smoothing, spec
        self.weights = {"imitation": 1.0}

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Loss over windows `[B, T]`. Metrics: the negative log likelihood without smoothing and weights (`nll`) and
        the share of steps where the most likely action is the target (`accuracy`)."""
        logits = self.logits(model, batch).flatten(0, 1)  # [B * T, A]
        target = self.target(batch).flatten()
        losses = self._losses(logits, target, batch.obs.flatten(0, 1))
        metrics = {
            "nll": F.cross_entropy(logits.detach(), target),
            "accuracy": (logits.argmax(-1) == target).float().mean(),
        }
        return {"imitation": (losses * batch.weight.flatten()).mean()}, metrics

    def target(self, batch: Batch) -> Tensor:
        """Actions to predict, `[B, T]`."""
        return batch.action

    def logits(self, model: nn.Module, batch: Batch) -> Tensor:
        """Action logits at every step of windows `[B, T]`, `[B, T, A]`: -inf for illegal actions."""
        return self.spec.legal_of(model(batch_context(self.spec, batch)), batch.obs)

    def _losses(self, logits: Tensor, target: Tensor, obs: Tensor) -> Tensor:
        """Cross-entropies `[N]` with the smoothed target, of logits `[N, A]` on observations `[N]` or `[N, K]`."""
        legal = self.spec.legal(obs)
        if legal is None:
            return F.cross_entropy(logits, target, label_smoothing=self.label_smoothing, reduction="none")
        losses = -logits.log_softmax(-1)
        spread = losses.masked_fill(~legal, 0.0).sum(-1) / legal.sum(-1)
        return torch.lerp(losses.gather(-1, target[:, None])[:, 0], spread, self.label_smoothing)
