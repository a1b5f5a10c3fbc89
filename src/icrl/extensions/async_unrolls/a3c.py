"""Asynchronous advantage actor-critic (A3C; Mnih et al., 2016, arXiv 1602.01783), many learners as one batched program.

A separate process plays (`source.async_unroll`) with a policy mu that is some iterations older than the policy pi that
learns, and records log mu(a|s). The loss is that of A2C with targets v in place of R and advantages A in place of
R - V(s), by the off-policy correction V-trace (Espeholt et al., 2018, arXiv 1802.01561; `v_trace`) of the ratios
pi(a|s) / mu(a|s), and no gradient through v, A and the ratios. Played by the policy that learns
(`source.async_unroll=false`), all ratios of the first update are 1, and it is A2C's up to rounding.
"""

from typing import Any, Literal

import torch
from torch import Tensor

from icrl.contracts import Rollout, Sample, UpdateResult
from icrl.rl.returns import backward_sums
from icrl.sources import source
from icrl.sources.a2c import ActorCritic, ActorCriticConfig
from icrl.sources.options import NEWEST_ALONE, Conflicts, named


class A3CConfig(ActorCriticConfig):
    name: Literal["a3c"] = named("a3c")

    former = {"rho_clip": 1.0, "c_clip": 1.0, "trace_lambda": 1.0}

    def conflicts(self) -> Conflicts:
        yield from super().conflicts()
        yield self.shared, NEWEST_ALONE


@source("a3c", A3CConfig)
class A3C(ActorCritic):
    """Learner with the loss above."""

    @torch.no_grad()
    def targets(self, rollout: Rollout, carry: Any = ()) -> dict[str, Tensor]:
        """log mu(a|s) of an unroll, `[T, B]`, beside the state of a memory."""
        columns = super().targets(rollout, carry)
        return columns | {"log_prob": self.heads.evaluate_actions(self._inputs(rollout, columns), rollout.action)[0]}

    def update(self, sample: Sample) -> UpdateResult:
        """One gradient step of every learner. actor_kl estimates KL(mu || pi) as PPO's approx_kl does; clip_fraction is
        the share of ratios above 1, which V-trace clips to 1."""
        rollout, inputs = sample.rollout, self._inputs(sample.rollout, sample.targets)
        log_prob, value, entropies = self.heads.evaluate_actions(inputs, rollout.action)
        ends = self._next_value(rollout, inputs), rollout.terminated, rollout.truncated
        log_ratio = log_prob.detach() - sample.targets["log_prob"]
        ratio = log_ratio.exp()
        returns, advantage = v_trace(rollout.reward, value.detach(), *ends, self._discount, ratio)
        metrics = {
            "actor_kl": self._per_learner(ratio - 1 - log_ratio),
            "clip_fraction": self._per_learner((ratio > 1).float()),
        }
        actor_loss = -log_prob * self.heads.scaled(advantage)
        return self._descend(sample, actor_loss, returns - value, entropies, metrics)


def v_trace(
    reward: Tensor,
    value: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    discount: float,
    ratio: Tensor,
) -> tuple[Tensor, Tensor]:
    """V-trace targets v of the values and advantages A of the actions, `[T, B]` each (Espeholt et al., 2018, arXiv
    1802.01561, section 4, remarks 1 and 2):

        rho_t = min(1, ratio_t)
        v_t   = V(s_t) + rho_t * (delta_t + discount * (v_{t+1} - V(s_{t+1})))
        A_t   = rho_t * (r_t + discount * v_{t+1} - V(s_t))

    with delta_t = r_t + discount * (0 if the task ended at t, else V(next_t)) - V(s_t). Where an episode ended at t, or
    t is the last step, v_{t+1} = V(s_{t+1}) = V(next_t), and 0 if the task ended at t. Arguments as in
    `rl.returns.n_step_returns`; `value` = V of the observation that the action was chosen on, `ratio` = pi(a|s) /
    mu(a|s), with mu the policy that played. If all ratios are 1, v is the n-step return.
    """
    ahead, on = discount * next_value.masked_fill(terminated, 0.0), discount * (terminated | truncated).logical_not()
    rho = ratio.clamp(max=1)
    excess = backward_sums(rho * (reward + ahead - value), on * rho)  # v - V
    later = torch.cat([excess[1:], torch.zeros_like(excess[:1])])
    return value + excess, rho * (reward + ahead + on * later - value)
