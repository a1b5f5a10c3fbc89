"""Algorithm distillation (Laskin et al., 2022): predict what the learning agent did next, at every step of its history.

    loss = - mean over b, t of log pi(a_t | everything before it in the window, o_t)

with the target smoothed to 1 - label_smoothing on a_t and the rest spread over all actions.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from src.contracts import Batch, EnvSpec
from src.nn.gpt import context_of
from src.schema import ObjectiveConfig


class AlgorithmDistillation:
    def __init__(self, config: ObjectiveConfig, spec: EnvSpec) -> None:
        self.label_smoothing, self.spec = config.label_smoothing, spec

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Mean loss over windows `[B, T]`, and as metrics the negative log likelihood without smoothing (`nll`) and how
        often the most likely action is the one taken (`accuracy`)."""
        logits = self.logits(model, batch).flatten(0, 1)  # [B * T, A]
        action = batch.action.flatten()
        loss = F.cross_entropy(logits, action, label_smoothing=self.label_smoothing)
        metrics = {
            "nll": F.cross_entropy(logits.detach(), action),
            "accuracy": (logits.argmax(-1) == action).float().mean(),
        }
        return loss, metrics

    def logits(self, model: nn.Module, batch: Batch) -> Tensor:
        """Action logits at every step of windows `[B, T]`, `[B, T, A]`."""
        return model(context_of(self.spec, batch.obs, batch.action, batch.reward, batch.timestep))
