"""Asynchronous advantage actor-critic (A3C; Mnih et al., 2016, arXiv 1602.01783) with the off-policy correction V-trace
(Espeholt et al., 2018, arXiv 1802.01561), many learners as one batched program.

A separate process plays (`collection.async_unroll`) with a policy mu that is some iterations older than the policy pi
that learns. It also records log mu(a|s). The loss of one learner over its W windows of T steps, averaged over the T * W
samples, is A2C's with V-trace targets v and advantages A (`rl.returns.v_trace`) of the ratios pi(a|s) / mu(a|s):

    L = -log pi(a|s) * A + value_coefficient * (v - V(s))^2 - entropy_coefficient * H(pi(.|s))

without a gradient through v, A and the ratios. Played by the policy that learns (`source.async_unroll=false`), all
ratios of the first update are 1, and it is A2C's up to rounding.
"""

from typing import Any, Literal

import torch
from torch import Tensor

from icrl.config.options import option
from icrl.contracts import Rollout, Sample
from icrl.rl.returns import v_trace
from icrl.sources import source
from icrl.sources.a2c import A2C, ActorCriticConfig
from icrl.sources.options import named


class A3CConfig(ActorCriticConfig):
    name: Literal["a3c"] = named("a3c")
    async_unroll: bool = option(True, "collect unrolls in another process while this one learns from earlier unrolls")

    former = {"rho_clip": 1.0, "c_clip": 1.0, "trace_lambda": 1.0}


@source("a3c", A3CConfig)
class A3C(A2C):
    """A2C with V-trace."""

    @torch.no_grad()
    def targets(self, rollout: Rollout, carry: Any = ()) -> dict[str, Tensor]:
        """log mu(a|s) of an unroll, `[T, B]`, beside A2C's columns."""
        columns = super().targets(rollout, carry)
        return columns | {"log_prob": self.heads.evaluate_actions(self._inputs(rollout, columns), rollout.action)[0]}

    def _fit(
        self, sample: Sample, inputs: Tensor, log_prob: Tensor, value: Tensor
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Losses and metrics. actor_kl estimates KL(mu || pi) as PPO's approx_kl does; clip_fraction is the share of
        ratios above 1, which V-trace clips to 1."""
        rollout, next_value = sample.rollout, self._next_value(sample.rollout, inputs)
        ends = rollout.terminated, rollout.truncated
        log_ratio = log_prob.detach() - sample.targets["log_prob"]
        ratio = log_ratio.exp()
        returns, advantage = v_trace(rollout.reward, value, next_value, *ends, self._discount, ratio)
        metrics = {
            "actor_kl": self._per_learner(ratio - 1 - log_ratio),
            "clip_fraction": self._per_learner((ratio > 1).float()),
        }
        return -log_prob * self.heads.scaled(advantage), returns, metrics
