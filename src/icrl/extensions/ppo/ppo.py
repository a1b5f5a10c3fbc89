"""Proximal policy optimisation (PPO; Schulman et al., 2017, arXiv 1707.06347), many learners as one batched program.

The policy pi_old that played an unroll computes once

    A = generalised advantage estimate (`gae`),    R = A + V_old(s)

so that several updates can learn from them. The loss of one learner over its W windows of T steps, averaged over the
T * W samples, is

    L = -min(ratio * A, clip(ratio, 0.8, 1.2) * A)
        + value_coefficient * (R - V(s))^2 - entropy_coefficient * H(pi(.|s)),    ratio = pi(a|s) / pi_old(a|s)

With `normalize_advantage`, A has mean 0 and deviation 1 over a learner's samples in an update. Over vectors, advantages
and errors of values are in running deviations of R, so unrolls should be about as long as episodes (`sources.a2c`).
"""

from typing import Any, Literal

import torch
from torch import Tensor

from icrl.config.options import option
from icrl.contracts import Rollout, Sample, UpdateResult
from icrl.rl.returns import backward_sums
from icrl.sources import source
from icrl.sources.a2c import ActorCritic, ActorCriticConfig
from icrl.sources.options import Conflicts, named

CLIP_RANGE = 0.2  # of the ratio, to both sides of 1


class PPOConfig(ActorCriticConfig):
    name: Literal["ppo"] = named("ppo")
    gae_lambda: float = option(0.95, "lambda of generalised advantage estimation", ge=0, le=1)
    normalize_advantage: bool = option(False, "scale a learner's advantages in a mini-batch to mean 0 and deviation 1")

    former = {"clip_range": CLIP_RANGE}

    def conflicts(self) -> Conflicts:
        yield from super().conflicts()
        yield self.unroll_length % 1, "$unroll_length: $name learns on-policy, so it must be a whole number"
        yield self.async_unroll, "$async_unroll plays with an older policy, but $name learns on-policy"
        length = self.mini_batch_length or self.unroll_length
        steps = length * (self.mini_batch_size or self.num_envs * (self.unroll_length // length))  # of a learner
        alone = "$normalize_advantage makes the advantage of an update on a single step 0: give false, or more steps"
        yield self.normalize_advantage and steps == 1 and not self.shared, alone


@source("ppo", PPOConfig)
class PPO(ActorCritic):
    """Learners with the loss above."""

    @torch.no_grad()
    def targets(self, rollout: Rollout, carry: Any = ()) -> dict[str, Tensor]:
        """log pi_old(a|s), advantage and return of an unroll, `[T, B]` each, beside the state of a memory."""
        columns = super().targets(rollout, carry)
        inputs = self._inputs(rollout, columns)
        log_prob, value, _ = self.heads.evaluate_actions(inputs, rollout.action)
        next_value, ends = self._next_value(rollout, inputs), (rollout.terminated, rollout.truncated)
        advantage = gae(rollout.reward, value, next_value, *ends, self._discount, self.config.gae_lambda)
        return columns | {"log_prob": log_prob, "advantage": advantage, "return": advantage + value}

    def update(self, sample: Sample) -> UpdateResult:
        """One gradient step of every learner. approx_kl estimates KL(pi_old || pi) by the mean of ratio - 1 - log
        ratio, which is never negative (Schulman, "Approximating KL divergence", 2020)."""
        inputs, returns = self._inputs(sample.rollout, sample.targets), sample.targets["return"]
        log_prob, value, entropies = self.heads.evaluate_actions(inputs, sample.rollout.action)
        advantage = self._advantage(sample)
        log_ratio = log_prob - sample.targets["log_prob"]
        ratio = log_ratio.exp()
        clipped = ratio.clamp(1 - CLIP_RANGE, 1 + CLIP_RANGE)
        metrics = {
            "approx_kl": self._per_learner((ratio - 1 - log_ratio).detach()),
            "clip_fraction": self._per_learner((ratio.detach() != clipped.detach()).float()),
        }
        actor_loss = -torch.min(ratio * advantage, clipped * advantage)
        return self._descend(sample, actor_loss, returns - value, entropies, metrics)

    def _scale(self, sample: Sample) -> Tensor:
        return sample.targets["return"]

    def _advantage(self, sample: Sample) -> Tensor:
        """Advantages `[T, B]` of the actor's loss."""
        advantage = self.heads.scaled(sample.targets["advantage"])
        if not self.config.normalize_advantage:
            return advantage
        own = advantage.unflatten(1, (self.num_learners, -1))
        deviation, mean = torch.std_mean(own, dim=(0, 2), correction=0, keepdim=True)
        return ((own - mean) / (deviation + 1e-8)).flatten(1)


def gae(
    reward: Tensor,
    value: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    discount: float,
    gae_lambda: float,
) -> Tensor:
    """Generalised advantage estimates, `[T, B]` (Schulman et al., 2016, arXiv 1506.02438):

        delta_t = r_t + discount * (0 if the task ended at t, else V(next_t)) - V(s_t)
        A_t     = delta_t + discount * gae_lambda * (0 if an episode ended at t or t is the last step, else A_{t+1})

    Arguments as in `rl.returns.n_step_returns`, which is A_t + V(s_t) for gae_lambda = 1; `value` = V(s_t).
    """
    delta = reward + discount * next_value.masked_fill(terminated, 0.0) - value
    return backward_sums(delta, (discount * gae_lambda) * (terminated | truncated).logical_not())
