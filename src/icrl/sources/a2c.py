"""Synchronous advantage actor-critic (Mnih et al., 2016), many learners as one batched program.

Loss of one learner over its W windows of T steps, averaged over the T * W samples:

    L = -log pi(a|s) * (R - V(s)) + value_coefficient * (R - V(s))^2 - entropy_coefficient * H(pi(.|s))

with R the longest n-step return (`rl.returns`) and no gradient through the advantage. The losses of all learners are
summed, gradients are clipped for each learner by itself, so learner k alone equals learner k among others.

An actor-critic learns on-policy: all its windows weigh the same, so the weight of a sample is 1 and is not read.

T steps, L learners, W windows per learner, B streams or windows (learner by learner), A actions.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from icrl.config.schedules import make_schedule
from icrl.config.training_schema import A2CConfig
from icrl.contracts import EnvSpec, Learned, Sample, Step
from icrl.nn.stacked import StackedAdam
from icrl.rl.returns import n_step_returns
from icrl.sources.actor_critic import make_heads
from icrl.sources.learners import Learners


class A2C(Learners):
    """An algorithm that differs in what actor and critic are fitted to overrides `targets` and `_fit`."""

    def __init__(self, config: A2CConfig, spec: EnvSpec, seeds: Tensor, device: torch.device) -> None:
        """`seeds` `[L]` int64: one for each learner."""
        super().__init__(len(seeds))
        self.heads = make_heads(spec, config.hidden_size, seeds, device)
        self.network = self.heads.network
        self.optimizer = StackedAdam(self.network, config)
        self._discount = config.discount
        self._learning_rate, self._entropy_coefficient, self._value_coefficient = (
            make_schedule(rate) for rate in (config.learning_rate, config.entropy_coefficient, config.value_coefficient)
        )
        self._reward_values = torch.tensor(spec.reward_values, device=device)

    def act(self, carry: tuple[()], step: Step, noise: Tensor) -> tuple[Tensor, tuple[()]]:
        """Sample from the learners' policies by inverting the cumulative distribution at `noise`."""
        return self.heads.act(step.obs, noise), carry

    def action_probabilities(self, step: Step) -> Tensor:
        """What `act` samples from, `[B, A]`."""
        return self.heads.probabilities(step.obs)

    def update(self, sample: Sample) -> Learned:
        """One gradient step of every learner on its windows; metrics are `[L]`."""
        said = self.heads.evaluate_actions(sample.rollout.obs, sample.rollout.action)
        actor_loss, returns, metrics = self._fit(sample, said.log_prob, said.value.detach())
        policy_loss = self._per_learner(actor_loss)
        value_loss = self._per_learner((returns - said.value).square())
        entropy = self._per_learner(said.entropy)
        learning_rate, entropy_coefficient, value_coefficient = (
            rate(self.clock) for rate in (self._learning_rate, self._entropy_coefficient, self._value_coefficient)
        )
        loss = policy_loss + value_coefficient * value_loss - entropy_coefficient * entropy
        norm = self.optimizer.descend(loss, learning_rate)
        self.heads.refresh()
        rates = {"learning_rate": learning_rate, "entropy_coefficient": entropy_coefficient}
        metrics |= {name: torch.full_like(norm, rate) for name, rate in rates.items()}
        metrics |= {"policy_loss": policy_loss.detach(), "value_loss": value_loss.detach()}
        return Learned(metrics | {"entropy": entropy.detach(), "gradient_norm": norm})

    def parameters(self) -> Iterator[tuple[str, Tensor]]:
        """Names and parameters, `[L, ...]` each."""
        return self.network.named_parameters()

    def outputs(self) -> dict[str, Tensor]:
        """What the networks say of every observation, where these can be listed."""
        return self.heads.outputs()

    def state_dict(self) -> dict[str, Any]:
        return {"network": self.network.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.heads.refresh()

    def _fit(self, sample: Sample, log_prob: Tensor, value: Tensor) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """The loss of the actor and the returns that the critic is fitted to, both `[T, B]`, and metrics `[L]`.
        `log_prob` of the actions taken, with its gradient, and `value` of the observations are `[T, B]`."""
        rollout = sample.rollout
        next_value = self.heads.value(rollout.next_obs)
        reward = self._reward_values[rollout.reward]
        returns = n_step_returns(reward, next_value, rollout.terminated, rollout.truncated, self._discount)
        return -log_prob * (returns - value), returns, {}
