"""Proximal policy optimisation (Schulman et al., 2017, arXiv 1707.06347), many learners as one batched program.

It differs from A2C (`a2c.py`) in two points. The policy pi_old that played an unroll computes its targets once,

    A = generalised advantage estimate (`rl.returns.gae`),    R = A + V_old(s)

so that several updates can learn from them, and the actor's loss of a sample is

    -min(ratio * A, clip(ratio, 1 - clip_range, 1 + clip_range) * A),    ratio = pi(a|s) / pi_old(a|s)

With `normalize_advantage`, A has mean 0 and deviation 1 over a learner's samples in an update.
"""

from typing import Literal

import torch
from torch import Tensor

from icrl.config.options import option
from icrl.contracts import Rollout, Sample
from icrl.rl.returns import gae
from icrl.sources import source
from icrl.sources.a2c import A2C, A2CConfig
from icrl.sources.options import Positive, named


class PPOConfig(A2CConfig):
    name: Literal["ppo"] = named("ppo")
    clip_range: Positive = option(0.2, "clip range c: the probability ratio is clipped to 1 - c .. 1 + c")
    gae_lambda: float = option(0.95, "lambda of generalised advantage estimation", ge=0, le=1)
    normalize_advantage: bool = option(False, "scale a learner's advantages in a mini-batch to mean 0 and deviation 1")


@source("ppo", PPOConfig)
class PPO(A2C):
    def targets(self, rollout: Rollout) -> dict[str, Tensor]:
        """log pi_old(a|s), advantage and return of an unroll, `[T, B]` each."""
        with torch.no_grad():
            log_prob, value, _ = self.heads.evaluate_actions(rollout.obs, rollout.action)
        next_value, reward = self.heads.value(rollout.next_obs), self._reward_values[rollout.reward]
        ends = rollout.terminated, rollout.truncated
        advantage = gae(reward, value, next_value, *ends, self._discount, self.config.gae_lambda)
        return {"log_prob": log_prob, "advantage": advantage, "return": advantage + value}

    def _fit(self, sample: Sample, log_prob: Tensor, value: Tensor) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """As in A2C. approx_kl estimates KL(pi_old || pi) by the mean of ratio - 1 - log ratio, which is never negative
        (Schulman, "Approximating KL divergence", 2020)."""
        advantage = sample.targets["advantage"]
        if self.config.normalize_advantage:
            own = advantage.unflatten(1, (self.num_learners, -1))
            deviation, mean = torch.std_mean(own, dim=(0, 2), correction=0, keepdim=True)
            advantage = ((own - mean) / (deviation + 1e-8)).flatten(1)
        clip_range = self.rate("clip_range")
        log_ratio = log_prob - sample.targets["log_prob"]
        ratio = log_ratio.exp()
        clipped = ratio.clamp(1 - clip_range, 1 + clip_range)
        metrics = {
            "approx_kl": self._per_learner((ratio - 1 - log_ratio).detach()),
            "clip_fraction": self._per_learner((ratio.detach() != clipped.detach()).float()),
        }
        return -torch.min(ratio * advantage, clipped * advantage), sample.targets["return"], metrics
