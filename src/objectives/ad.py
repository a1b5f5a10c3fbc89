"""Algorithm distillation (Laskin et al., 2022): predict what the learning agent did next, at every step of its history.

    loss = - mean over b, t of log pi(a_t | everything before it in the window, o_t)

with the target smoothed to 1 - label_smoothing on a_t and the rest spread over all actions.
"""

import torch.nn.functional as F
from torch import Tensor

from src.schema import ObjectiveConfig
from src.contracts import Batch
from src.nn.gpt import GPT, context_of


class AlgorithmDistillation:
    def __init__(self, config: ObjectiveConfig) -> None:
        self.label_smoothing = config.label_smoothing

    def __call__(self, model: GPT, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Mean loss over windows `[B, T]`, and as metrics the negative log likelihood without smoothing (`nll`) and how
        often the most likely action is the one taken (`accuracy`)."""
        context = context_of(model.spec, batch.obs, batch.action, batch.reward, batch.timestep)
        logits = model(context).flatten(0, 1)  # [B * T, A]
        action = batch.action.flatten()
        loss = F.cross_entropy(logits, action, label_smoothing=self.label_smoothing)
        metrics = {
            "nll": F.cross_entropy(logits.detach(), action),
            "accuracy": (logits.argmax(-1) == action).float().mean(),
        }
        return loss, metrics
