"""Synchronous advantage actor-critic (Mnih et al., 2016), many learners as one batched program.

Loss of one learner over its W windows of T steps, averaged over the T * W samples:

    L = -log pi(a|s) * (R - V(s)) + value_coefficient * (R - V(s))^2 - entropy_coefficient * H(pi(.|s))

with R the longest n-step return (`rl.returns`) and no gradient through the advantage. The losses of all learners are
summed and gradients are clipped per learner, so learner k alone equals learner k among others. The weights of samples
are not read: an on-policy learner gives all its windows the same weight.
"""

from typing import Annotated, Any, Literal

import torch
from torch import Tensor

from icrl.config.options import Rate, option
from icrl.contracts import EnvSpec, Learned, Sample, Step
from icrl.nn.networks import StackedAdam
from icrl.rl.returns import n_step_returns
from icrl.sources import source
from icrl.sources.actor_critic import PointHeads, TableHeads
from icrl.sources.learners import Learner
from icrl.sources.options import NetworkConfig

_NAME = "source algorithm; the preset `source=` sets all of this group"


class A2CConfig(NetworkConfig):
    name: Literal["a2c"] = option("a2c", _NAME)
    entropy_coefficient: Annotated[Any, Rate(ge=0)] = option(0.01, "weight of the entropy bonus")
    value_coefficient: Annotated[Any, Rate(ge=0)] = option(0.99, "weight of the value loss")


@source("a2c", A2CConfig)
class A2C(Learner):
    """Base of actor-critics; another one overrides `targets` and `_fit`."""

    def __init__(self, config: A2CConfig, spec: EnvSpec, seeds: Tensor, device: torch.device) -> None:
        super().__init__(config, spec, seeds, device)
        self.heads = (PointHeads if spec.obs_shape else TableHeads)(spec, config.hidden_size, seeds, device)
        self.network = self.heads.network
        self.optimizer = StackedAdam(self.network, config)

    def act(self, carry: Any, step: Step, noise: Tensor) -> tuple[Tensor, Any]:
        return self.heads.act(step.obs, noise), carry

    def action_probabilities(self, step: Step) -> Tensor:
        return self.heads.probabilities(step.obs)

    def outputs(self) -> dict[str, Tensor]:
        return self.heads.outputs()

    def update(self, sample: Sample) -> Learned:
        """One gradient step of every learner."""
        evaluation = self.heads.evaluate_actions(sample.rollout.obs, sample.rollout.action)
        actor_loss, returns, metrics = self._fit(sample, evaluation.log_prob, evaluation.value.detach())
        policy_loss = self._per_learner(actor_loss)
        value_loss = self._per_learner((returns - evaluation.value).square())
        entropy = self._per_learner(evaluation.entropy)
        rates = {name: self.rate(name) for name in ("learning_rate", "entropy_coefficient")}
        loss = policy_loss + self.rate("value_coefficient") * value_loss - rates["entropy_coefficient"] * entropy
        norm = self.optimizer.descend(loss, rates["learning_rate"])
        self.heads.refresh()
        metrics |= {name: torch.full_like(norm, rate) for name, rate in rates.items()}
        metrics |= {"policy_loss": policy_loss.detach(), "value_loss": value_loss.detach()}
        return Learned(metrics | {"entropy": entropy.detach(), "gradient_norm": norm})

    def state_dict(self) -> dict[str, Any]:
        return {"network": self.network.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.heads.refresh()

    def _fit(self, sample: Sample, log_prob: Tensor, value: Tensor) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Loss of the actor and returns that the critic is fitted to, `[T, B]` each, and metrics `[L]`. `log_prob` of
        the actions, with gradient, and `value` of the observations are `[T, B]`."""
        rollout = sample.rollout
        next_value = self.heads.value(rollout.next_obs)
        reward = self._reward_values[rollout.reward]
        returns = n_step_returns(reward, next_value, rollout.terminated, rollout.truncated, self._discount)
        return -log_prob * (returns - value), returns, {}
