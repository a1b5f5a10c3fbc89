"""Algorithm distillation (Laskin et al., 2022): predict what the learning agent did next, at every step of its history.

    loss = - mean over b, t of w_bt log pi(a_t | everything before it in the window, o_t)

with the weights w of the batch (`data/weights.py`), and the target smoothed to 1 - label_smoothing on a_t and the rest
spread over all actions.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from src.contracts import Batch, EnvSpec
from src.nn.gpt import context_of
from src.schema import ObjectiveConfig


class AlgorithmDistillation:
    def __init__(self, config: ObjectiveConfig, spec: EnvSpec) -> None:
        self.label_smoothing, self.spec = config.label_smoothing, spec
        self.weights = {"imitation": 1.0}

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The loss over windows `[B, T]`, and as metrics the negative log likelihood without smoothing and weights
        (`nll`) and how often the most likely action is the target (`accuracy`)."""
        logits = self.logits(model, batch).flatten(0, 1)  # [B * T, A]
        target = self.target(batch).flatten()
        losses = F.cross_entropy(logits, target, label_smoothing=self.label_smoothing, reduction="none")
        metrics = {
            "nll": F.cross_entropy(logits.detach(), target),
            "accuracy": (logits.argmax(-1) == target).float().mean(),
        }
        return {"imitation": (losses * batch.weight.flatten()).mean()}, metrics

    def target(self, batch: Batch) -> Tensor:
        """What is predicted at every step, `[B, T]`."""
        return batch.action

    def logits(self, model: nn.Module, batch: Batch) -> Tensor:
        """Action logits at every step of windows `[B, T]`, `[B, T, A]`."""
        return model(context_of(self.spec, batch.obs, batch.action, batch.reward, batch.timestep))
