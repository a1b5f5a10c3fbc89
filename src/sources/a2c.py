"""Synchronous advantage actor-critic (Mnih et al., 2016), many learners as one batched program.

Loss of one learner over its rollout of T steps in N environments, averaged over the T * N samples:

    L = -log pi(a|s) * (R - V(s)) + value_coefficient * (R - V(s))^2 - entropy_coefficient * H(pi(.|s))

with R the longest n-step return (`rl.returns`) and no gradient through the advantage. The losses of all learners are
summed, gradients are clipped for each learner by itself, so learner k alone equals learner k among others.

T steps, L learners, N environments per learner, B = L * N streams (learner by learner), S observations, A actions.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from src.contracts import EnvSpec, Rollout, Step
from src.nn.stacked import StackedActorCritic
from src.randomness import cumulative, draw
from src.rl.returns import n_step_returns
from src.schedules import Clock, make_schedule
from src.sources.rows import LearnerRows
from src.training_schema import A2CConfig


class A2C:
    """L learners and, as a `Policy`, what they do in their B streams; the carry is empty."""

    def __init__(self, config: A2CConfig, spec: EnvSpec, seeds: Tensor, device: torch.device) -> None:
        """`seeds` `[L]` int64: one for each learner."""
        self.config = config
        self.num_learners = len(seeds)
        self.network = StackedActorCritic(
            self.num_learners, spec.num_obs, spec.num_actions, config.hidden_size, seeds
        ).to(device)
        self.optimizer = torch.optim.Adam(
            self.network.parameters(),
            lr=0.0,  # set before each update
            betas=(config.adam_beta1, config.adam_beta2),
            eps=config.adam_eps,
            fused=True,
        )
        self._learning_rate, self._entropy_coefficient, self._value_coefficient = (
            make_schedule(rate) for rate in (config.learning_rate, config.entropy_coefficient, config.value_coefficient)
        )
        self._rows = LearnerRows(self.num_learners, spec.num_obs, device)
        self._tabulate()

    def set_clock(self, clock: Clock) -> None:
        """Progress of the run, which rates are functions of."""
        self.clock = clock

    def initial_carry(self, num_streams: int) -> tuple[()]:
        if num_streams % self.num_learners:
            raise ValueError(f"{num_streams} streams for {self.num_learners} learners")
        return ()

    def act(self, carry: tuple[()], step: Step, noise: Tensor) -> tuple[Tensor, tuple[()]]:
        """Sample from the learners' policies by inverting the cumulative distribution at `noise`."""
        return draw(self._cumulative[self._rows.of(step.obs)], noise), carry

    def action_probabilities(self, obs: Tensor) -> Tensor:
        """What `act` samples from, `[B] -> [B, A]`."""
        return self._log_policy.detach()[self._rows.of(obs)].exp()

    def update(self, rollout: Rollout) -> dict[str, Tensor]:
        """One gradient step of every learner on its streams of `rollout` `[T, B]`; metrics are `[L]`."""
        config = self.config
        log_policy, values = self._log_policy, self._values
        table_row = self._rows.of(rollout.obs)  # [T, B]
        entropies = -(log_policy.exp() * log_policy).sum(-1)  # [L * S]
        log_prob = _look_up(log_policy.flatten(), table_row * log_policy.shape[-1] + rollout.action)
        value = _look_up(values, table_row)
        next_value = values.detach()[self._rows.of(rollout.next_obs)]
        returns = n_step_returns(
            rollout.reward.float(), next_value, rollout.terminated, rollout.truncated, config.discount
        )
        advantage = returns - value
        policy_loss = -self._per_learner(log_prob * advantage.detach())
        value_loss = self._per_learner(advantage.square())
        entropy = self._per_learner(_look_up(entropies, table_row))
        value_coefficient, entropy_coefficient = (
            self._value_coefficient(self.clock),
            self._entropy_coefficient(self.clock),
        )
        loss = policy_loss + value_coefficient * value_loss - entropy_coefficient * entropy
        for group in self.optimizer.param_groups:
            group["lr"] = self._learning_rate(self.clock)
        self.optimizer.zero_grad()
        loss.sum().backward()
        norm = self._clip_gradients()
        self.optimizer.step()
        self._tabulate()
        rates = {"learning_rate": self._learning_rate(self.clock), "entropy_coefficient": entropy_coefficient}
        return {name: torch.full_like(norm, rate) for name, rate in rates.items()} | {
            "policy_loss": policy_loss.detach(),
            "value_loss": value_loss.detach(),
            "entropy": entropy.detach(),
            "gradient_norm": norm,
        }

    def parameters(self) -> Iterator[tuple[str, Tensor]]:
        """Names and parameters, `[L, ...]` each."""
        return self.network.named_parameters()

    def outputs(self) -> dict[str, Tensor]:
        """What the networks say of every observation."""
        return {"log_policy": self._log_policy.detach(), "values": self._values.detach()}

    def state_dict(self) -> dict[str, Any]:
        return {"network": self.network.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        self._tabulate()

    def _per_learner(self, samples: Tensor) -> Tensor:
        """Mean over each learner's samples, `[T, B] -> [L]`."""
        return samples.unflatten(1, (self.num_learners, -1)).mean(dim=(0, 2))

    def _clip_gradients(self) -> Tensor:
        """Scale each learner's gradient to at most `max_gradient_norm`; returns the norms before, `[L]`."""
        gradients = [p.grad for p in self.network.parameters() if p.grad is not None]
        norm = torch.stack([torch.linalg.vector_norm(g, dim=(1, 2)) for g in gradients]).norm(dim=0)
        scale = (self.config.max_gradient_norm / (norm + 1e-6)).clamp(max=1.0)
        for gradient in gradients:
            gradient.mul_(scale[:, None, None])
        return norm

    def _tabulate(self) -> None:
        """Policies and values are constant between updates: tabulate them over all L * S rows, once for acting and for
        the next update's loss, whose gradient flows through these tables."""
        logits, values = self.network()
        self._values = values.flatten()
        self._log_policy = logits.flatten(0, 1).log_softmax(-1)  # [L * S, A]
        self._cumulative = cumulative(self._log_policy.detach().exp())  # [L * S, A - 1]


def _look_up(table: Tensor, index: Tensor) -> Tensor:
    """`table[index]` for a flat table. Its gradient is added up in one order, where that of indexing depends on which
    thread comes first."""
    return table.index_select(0, index.flatten()).view_as(index)
