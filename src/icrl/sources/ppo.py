"""Proximal policy optimisation (Schulman et al., 2017, arXiv 1707.06347), many learners as one batched program.

It is A2C (`a2c.py`) but for what an unroll is turned into, once, by the policy pi_old that played it:

    A = generalised advantage estimate (`rl.returns.gae`),    R = A + V_old(s)

so that several updates can learn from it, in which the actor's loss of a sample is

    -min(ratio * A, clip(ratio, 1 - clip_range, 1 + clip_range) * A),    ratio = pi(a|s) / pi_old(a|s)

With `normalize_advantage`, A is brought to mean 0 and deviation 1 over the samples of a learner in an update.
"""

import torch
from torch import Tensor

from icrl.config.schedules import make_schedule
from icrl.config.training_schema import PPOConfig
from icrl.contracts import EnvSpec, Rollout, Sample
from icrl.rl.returns import gae
from icrl.sources.a2c import A2C


class PPO(A2C):
    def __init__(self, config: PPOConfig, spec: EnvSpec, seeds: Tensor, device: torch.device) -> None:
        super().__init__(config, spec, seeds, device)
        self._gae_lambda = config.gae_lambda
        self._normalize_advantage = config.normalize_advantage
        self._clip_range = make_schedule(config.clip_range)

    def targets(self, rollout: Rollout) -> dict[str, Tensor]:
        """log pi_old(a|s), advantage and return of an unroll `[T, L * N]`, as the present networks see it."""
        value, next_value = self.heads.value(rollout.obs), self.heads.value(rollout.next_obs)
        reward, ends = self._reward_values[rollout.reward], (rollout.terminated, rollout.truncated)
        advantage = gae(reward, value, next_value, *ends, self._discount, self._gae_lambda)
        log_prob = self.heads.log_prob(rollout.obs, rollout.action)
        return {"log_prob": log_prob, "advantage": advantage, "return": advantage + value}

    def _fit(self, sample: Sample, log_prob: Tensor, value: Tensor) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """See `A2C._fit`. approx_kl estimates KL(pi_old || pi) by the mean of ratio - 1 - log ratio, which is never
        negative (Schulman, "Approximating KL divergence", 2020)."""
        advantage = sample.targets["advantage"]
        if self._normalize_advantage:
            advantage = self._normalized(advantage)
        clip_range = self._clip_range(self.clock)
        log_ratio = log_prob - sample.targets["log_prob"]
        ratio = log_ratio.exp()
        clipped = ratio.clamp(1 - clip_range, 1 + clip_range)
        metrics = {
            "approx_kl": self._per_learner((ratio - 1 - log_ratio).detach()),
            "clip_fraction": self._per_learner((ratio.detach() != clipped.detach()).float()),
        }
        return -torch.min(ratio * advantage, clipped * advantage), sample.targets["return"], metrics

    def _normalized(self, advantage: Tensor) -> Tensor:
        """`[T, B]` with mean 0 and population standard deviation 1 over each learner's samples."""
        own = advantage.unflatten(1, (self.num_learners, -1))
        deviation, mean = torch.std_mean(own, dim=(0, 2), correction=0, keepdim=True)
        return ((own - mean) / (deviation + 1e-8)).flatten(1)
