"""Advantage-weighted regression (Peng et al., 2019) in context: a policy from frozen values.

    loss = - mean over b, t of w_bt log pi(a_t | everything before it in the window, o_t)
    log w = min(b A, log advantage_threshold),  A = min(Q1, Q2)(o_t, a_t) - V(o_t)

with pi over the actions that are legal and the inverse temperature b (0: plain imitation). `normalize=mean` divides the
weights by their mean over the batch, `softmax` subtracts its logarithm from b A before the minimum is taken. Everything
is in log space and float32, so no value is too large; no gradient reaches Q or V.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from icrl.config.offline_schema import AwrConfig
from icrl.contracts import Batch
from icrl.nn.critic import ValueNetwork, in_full
from icrl.nn.gpt import context_of


class AdvantageWeightedRegression:
    def __init__(self, config: AwrConfig, critic: ValueNetwork) -> None:
        self.config, self.critic, self.spec = config, critic.requires_grad_(False).eval(), critic.spec
        self.inverse_temperature = inverse_temperature(config)
        self.weights = {"imitation": 1.0}

    def __call__(self, model: nn.Module, batch: Batch) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The loss; as metrics the negative log likelihood without weights (`nll`), how often the most likely action is
        the one taken (`accuracy`), the mean advantage, and of the weights the largest before it is clipped
        (`largest_weight`, its logarithm), how many are clipped (`clipped`) and the effective sample size over the
        batch's, (sum w)^2 / (N sum w^2) (`effective_samples`)."""
        logits = self.logits(model, batch)
        nll = F.cross_entropy(in_full(logits).flatten(0, 1), batch.action.flatten(), reduction="none")  # [B * T]
        advantage = self.advantage(batch).flatten()
        log_weight, free = self.log_weights(advantage)
        relative = (log_weight - log_weight.max()).exp()  # some of them are not 0, however small all weights are
        metrics = {
            "nll": nll.detach().mean(),
            "accuracy": (logits.argmax(-1) == batch.action).float().mean(),
            "advantage": advantage.mean(),
            "largest_weight": free.max(),
            "clipped": (free > math.log(self.config.advantage_threshold)).float().mean(),
            "effective_samples": relative.sum().square() / relative.square().sum() / len(relative),
        }
        return {"imitation": (nll * log_weight.exp()).mean()}, metrics

    @torch.no_grad()
    def advantage(self, batch: Batch) -> Tensor:
        """Of the actions that were taken, `[B, T]`."""
        values = self.critic(context_of(self.spec, batch.obs, batch.action, batch.reward, batch.timestep))
        return values.advantage.gather(-1, batch.action[..., None])[..., 0]

    def log_weights(self, advantage: Tensor) -> tuple[Tensor, Tensor]:
        """Logarithms of the weights of steps with these advantages `[N]`, and of what they would be without the
        threshold."""
        free = self.inverse_temperature * advantage
        if self.config.normalize == "softmax":
            free = free - _log_mean(free)
        log_weight = free.clamp(max=math.log(self.config.advantage_threshold))
        return (log_weight - _log_mean(log_weight) if self.config.normalize == "mean" else log_weight), free

    def logits(self, model: nn.Module, batch: Batch) -> Tensor:
        """Action logits at every step of windows `[B, T]`, `[B, T, A]`: -inf where an action is illegal."""
        logits = model(context_of(self.spec, batch.obs, batch.action, batch.reward, batch.timestep))
        return self.spec.legal_of(logits, batch.obs)


def inverse_temperature(config: AwrConfig) -> float:
    """What advantages are multiplied by; one of the two options says."""
    if config.temperature is not None:
        return 1 / config.temperature
    assert config.inverse_temperature is not None, "one of the two is given"
    return config.inverse_temperature


def _log_mean(logs: Tensor) -> Tensor:
    """The logarithm of the mean of what has these logarithms; where all are equal, theirs to the bit."""
    largest = logs.max()
    return largest + (logs - largest).exp().mean().log()
