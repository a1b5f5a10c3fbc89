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
        "ad", "ad: predict the source's next action at every step; dpt: the action of a planner that knows the task"
    )
    label_smoothing: float = option(0.0, "probability mass spread over all actions", ge=0, le=0.99)
    weighting: Literal["none", "improvement", "recency"] = option(
        "improvement",
        "weight of a step. none: equal; improvement: its return-to-go relative to other learners at that age; recency: "
        "proportional to its age",
    )
    discount: float = option(0.9, "discount of the return-to-go", ge=0, le=1)
    max_weight: float = option(20.0, "largest weight of a step if weighting is improvement", ge=1, le=1000)


def batch_context(spec: EnvSpec, batch: Batch) -> Context:
    """Context of the windows of a batch."""
    return context_of(spec, batch.obs, batch.action, batch.reward, batch.timestep)


class AlgorithmDistillation:
    """Objective with the equation above."""

    target = "action"  # column of the batch to predict

    def __init__(self, config: ObjectiveConfig, spec: EnvSpec) -> None:
        self.label_smoothing, self.spec, self.weights = config.label_smoothing, spec, {"imitation": 1.0}

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Loss over windows `[B, T]`. Metrics: the negative log likelihood without smoothing and weights (`nll`) and
        the share of steps where the most likely action is the target (`accuracy`)."""
        logits, target = self.logits(model, batch).flatten(0, 1), getattr(batch, self.target).flatten()  # [B * T, A]
        legal = self.spec.legal(batch.obs.flatten(0, 1))
        if legal is None:
            losses = F.cross_entropy(logits, target, label_smoothing=self.label_smoothing, reduction="none")
        else:
            each = -logits.log_softmax(-1)
            spread = each.masked_fill(~legal, 0.0).sum(-1) / legal.sum(-1)
            losses = torch.lerp(each.gather(-1, target[:, None])[:, 0], spread, self.label_smoothing)
        accuracy = (logits.argmax(-1) == target).float().mean()
        metrics = {"nll": F.cross_entropy(logits.detach(), target), "accuracy": accuracy}
        return {"imitation": (losses * batch.weight.flatten()).mean()}, metrics

    def logits(self, model: nn.Module, batch: Batch) -> Tensor:
        """Action logits at every step of windows `[B, T]`, `[B, T, A]`: -inf for illegal actions."""
        return self.spec.legal_of(model(batch_context(self.spec, batch)), batch.obs)


class DecisionPretraining(AlgorithmDistillation):
    """Decision pretraining (Lee et al., 2023): the equation above with the action a*_t of a planner that knows the task
    in place of a_t. A model trained in this way performs posterior sampling.

    *Differences from the paper:* the context is the stream's own past, in order and across episodes, and every step of
    it is a query, instead of a shuffled set of transitions with one query state."""

    target = "optimal_action"
