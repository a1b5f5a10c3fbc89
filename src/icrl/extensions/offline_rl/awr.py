"""Extraction of a policy from values: advantage-weighted regression.

The policy predicts an action at every step of a window b of a history:

    loss = - mean over b, t of w_bt log pi(a_t | everything before it in the window, o_t)

Advantage-weighted regression (Peng et al., 2019) makes a policy from a frozen critic:

    log w = min(b A, log advantage_threshold),  A = min(Q1, Q2)(o_t, a_t) - V(o_t)

with the inverse temperature b (0: plain imitation). Weights are computed in log space and float32 to avoid overflow. No
gradient reaches Q or V.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from icrl.config.options import NO_EFFECT, Options, option
from icrl.contracts import Batch
from icrl.extensions.offline_rl.critic import ValueNetwork
from icrl.nn.gpt import Window, context_of
from icrl.nn.networks import in_float32
from icrl.objectives.imitation import Imitation


class AwrConfig(Options):
    """Options of advantage-weighted policy extraction."""

    inverse_temperature: float = option(10.0, "factor of the advantages; 0 clones the source", ge=0)
    advantage_threshold: float = option(20.0, "largest weight of a step; its logarithm clips the exponent", gt=0)

    former = {
        **{"normalize": "none", "num_epochs": 0, "temperature": (None,)},
        **{"initial_encoder": NO_EFFECT, "resume": NO_EFFECT, "experiment_name": "awr"},
    }


class AdvantageWeightedRegression(Imitation):
    """Objective with the weights above."""

    lowered = "awr.advantage_threshold, "

    def __init__(self, config: AwrConfig, critic: ValueNetwork) -> None:
        self.config, self.critic, self.spec = config, critic.requires_grad_(False).eval(), critic.spec
        self.weights = {"imitation": 1.0}

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Loss. Metrics: `nll` and `accuracy` as in algorithm distillation, without weights; the mean `advantage`, the
        logarithm of the largest weight before clipping, the share of clipped weights, and the effective sample size as
        a share of the batch, (sum w)^2 / (N sum w^2)."""
        logits = self.logits(model, batch)
        nll = F.cross_entropy(in_float32(logits).flatten(0, 1), batch.action.flatten(), reduction="none")  # [B * T]
        advantage = self.advantage(batch).flatten()
        log_weight, free = self.log_weights(advantage)
        relative = (log_weight - log_weight.max()).exp()  # not all 0, however small the weights are
        metrics = {
            "nll": nll.detach().mean(),
            "accuracy": (logits.argmax(-1) == batch.action).float().mean(),
            "advantage": advantage.mean(),
            "largest_weight": free.max(),
            "clipped": (free > math.log(self.config.advantage_threshold)).float().mean(),
            "effective_samples": relative.sum().square() / relative.square().sum() / len(relative),
        }
        return {"imitation": (nll * log_weight.exp()).mean()}, metrics

    def logits(self, model: nn.Module, batch: Batch) -> Tensor:
        return super().logits(model, batch)[..., : self.spec.num_actions]  # a head may predict more

    @torch.no_grad()
    def advantage(self, batch: Batch) -> Tensor:
        """Advantages of the actions taken, `[B, T]`."""
        return self.critic(context_of(Window.of(batch))).advantage.gather(-1, batch.action[..., None])[..., 0]

    def log_weights(self, advantage: Tensor) -> tuple[Tensor, Tensor]:
        """Logarithms of the weights of steps with these advantages `[N]`, with and without the threshold."""
        free = self.config.inverse_temperature * advantage
        return free.clamp(max=math.log(self.config.advantage_threshold)), free
