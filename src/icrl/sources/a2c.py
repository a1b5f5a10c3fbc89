"""Actor-critics, many learners as one batched program: synchronous advantage actor-critic (A2C; Mnih et al., 2016),
proximal policy optimisation (PPO; Schulman et al., 2017, arXiv 1707.06347), and A3C with V-trace.

Loss of one learner of A2C over its W windows of T steps, averaged over the T * W samples:

    L = -log pi(a|s) * (R - V(s)) + value_coefficient * (R - V(s))^2 - entropy_coefficient * H(pi(.|s))

with R the longest n-step return (`rl.returns`) and no gradient through the advantage. Policies and values are those of
`sources.heads`; over vectors, advantages and errors of values are in running deviations of R. The losses of all
learners are summed and gradients are clipped per learner, so learner k alone equals learner k among others. The weights
of samples are not read: an on-policy learner gives all its windows the same weight.
"""

from typing import Any, Literal

import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor

from icrl.config.options import option
from icrl.contracts import Learned, Rollout, Sample, Step
from icrl.nn.heads import make_head
from icrl.nn.networks import StackedAdam
from icrl.rl.returns import gae, n_step_returns, v_trace
from icrl.sources import source
from icrl.sources.heads import PointHeads, TableHeads, VectorHeads, heads_of
from icrl.sources.learners import Learner
from icrl.sources.options import Conflicts, NetworkConfig, NotNegative, Positive, named
from icrl.spaces import EnvSpec


class ActorCriticConfig(NetworkConfig):
    entropy_coefficient: NotNegative = option(0.01, "weight of the entropy bonus")
    value_coefficient: NotNegative = option(0.99, "weight of the value loss")


class A2CConfig(ActorCriticConfig):
    name: Literal["a2c"] = named("a2c")

    def conflicts(self) -> Conflicts:
        yield from super().conflicts()
        yield self.unroll_length % 1, "{unroll_length}: {name} learns on-policy, so it must be a whole number"
        yield self.async_unroll, "{async_unroll} plays with an older policy, but {name} learns on-policy"


class ActorCritic(Learner):
    """Learners that act by the policies of their `Heads`. A subclass gives `update`."""

    saved = ("network", "optimizer")
    heads: Any

    def __init__(self, config: NetworkConfig, spec: EnvSpec, seeds: Tensor, device: torch.device) -> None:
        super().__init__(config, spec, seeds, device)
        self.heads = self.heads_of(spec)(spec, config.hidden_size, seeds, device)
        self.network, self.outputs, self.refresh = self.heads.network, self.heads.outputs, self.heads.refresh
        self.optimizer = StackedAdam(self.network, config)

    @staticmethod
    def heads_of(spec: EnvSpec) -> type[TableHeads | PointHeads | VectorHeads]:
        """Class of the heads in a world with `spec`."""
        return heads_of(spec)

    def act(self, carry: Any, step: Step, noise: Tensor) -> tuple[Tensor, Any]:
        return self.heads.act(step.obs, noise), carry

    def action_probabilities(self, step: Step) -> Tensor:
        return self.heads.probabilities(step.obs)

    def act_in_evaluation(self, step: Step, noise: Tensor, sample_probability: float) -> Tensor:
        if isinstance(self._spec.action_space, Discrete):
            return super().act_in_evaluation(step, noise, sample_probability)
        sampled = (noise < sample_probability).view(-1, *(1 for _ in self._spec.action_shape))
        return torch.where(sampled, self.heads.act(step.obs, noise), self.heads.mode(step.obs))


@source("a2c", A2CConfig)
class A2C(ActorCritic):
    """Base of on-policy actor-critics; another one overrides `targets` and `_fit`."""

    @classmethod
    def check_spaces(cls, name: str, spec: EnvSpec) -> None:
        if not isinstance(spec.action_space, Box):
            make_head(spec.action_space)  # raises

    def update(self, sample: Sample) -> Learned:
        """One gradient step of every learner."""
        log_prob, value, entropies = self.heads.evaluate_actions(sample.rollout.obs, sample.rollout.action)
        actor_loss, returns, metrics = self._fit(sample, log_prob, value.detach())
        policy_loss, error = self._per_learner(actor_loss), self.heads.scaled(returns - value)
        value_loss = self._per_learner(error.square())
        entropy = self._per_learner(entropies)
        rates = {name: self.rate(name) for name in ("learning_rate", "entropy_coefficient")}
        loss = policy_loss + self.rate("value_coefficient") * value_loss - rates["entropy_coefficient"] * entropy
        norm = self.optimizer.descend(loss, rates["learning_rate"])
        self.heads.observe(sample.rollout.obs, returns)
        self.refresh()
        metrics |= {name: torch.full_like(norm, rate) for name, rate in rates.items()}
        metrics |= {"policy_loss": policy_loss.detach(), "value_loss": value_loss.detach()}
        return Learned(metrics | {"entropy": entropy.detach(), "gradient_norm": norm})

    def _fit(self, sample: Sample, log_prob: Tensor, value: Tensor) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Loss of the actor and returns for the critic, `[T, B]`, and metrics `[L]`. `log_prob` of the actions has a
        gradient, `value` of the observations has none; both are `[T, B]`."""
        rollout, next_value = sample.rollout, self.heads.value(sample.rollout.next_obs)
        ends = rollout.terminated, rollout.truncated
        returns = n_step_returns(rollout.reward, next_value, *ends, self._discount)
        return -log_prob * self.heads.scaled(returns - value), returns, {}


class PPOConfig(A2CConfig):
    name: Literal["ppo"] = named("ppo")
    clip_range: Positive = option(0.2, "clip range c: the probability ratio is clipped to 1 - c .. 1 + c")
    gae_lambda: float = option(0.95, "lambda of generalised advantage estimation", ge=0, le=1)
    normalize_advantage: bool = option(False, "scale a learner's advantages in a mini-batch to mean 0 and deviation 1")


@source("ppo", PPOConfig)
class PPO(A2C):
    """A2C with other targets and another loss of the actor. The policy pi_old that played an unroll computes once

        A = generalised advantage estimate (`rl.returns.gae`),    R = A + V_old(s)

    so that several updates can learn from them, and the actor's loss of a sample is

        -min(ratio * A, clip(ratio, 1 - clip_range, 1 + clip_range) * A),    ratio = pi(a|s) / pi_old(a|s)

    With `normalize_advantage`, A has mean 0 and deviation 1 over a learner's samples in an update."""

    def targets(self, rollout: Rollout) -> dict[str, Tensor]:
        """log pi_old(a|s), advantage and return of an unroll, `[T, B]` each."""
        with torch.no_grad():
            log_prob, value, _ = self.heads.evaluate_actions(rollout.obs, rollout.action)
        next_value, ends = self.heads.value(rollout.next_obs), (rollout.terminated, rollout.truncated)
        advantage = gae(rollout.reward, value, next_value, *ends, self._discount, self.config.gae_lambda)
        return {"log_prob": log_prob, "advantage": advantage, "return": advantage + value}

    def _fit(self, sample: Sample, log_prob: Tensor, value: Tensor) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Losses and metrics. approx_kl estimates KL(pi_old || pi) by the mean of ratio - 1 - log ratio, which is never
        negative (Schulman, "Approximating KL divergence", 2020)."""
        advantage = self.heads.scaled(sample.targets["advantage"])
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


class A3CConfig(ActorCriticConfig):
    name: Literal["a3c"] = named("a3c")
    async_unroll: bool = option(True, "collect unrolls in another process while this one learns from earlier unrolls")
    rho_clip: float = option(1.0, "largest importance ratio in the TD errors and advantages of V-trace", gt=0)
    c_clip: float = option(1.0, "largest importance ratio in the traces of V-trace", gt=0)
    trace_lambda: float = option(1.0, "lambda of V-trace: 1 traces to the end of the window, 0 one step", ge=0, le=1)

    def conflicts(self) -> Conflicts:
        yield from super().conflicts()
        yield self.c_clip > self.rho_clip, "{c_clip} must be at most {rho_clip}"


@source("a3c", A3CConfig)
class A3C(A2C):
    """A2C with the off-policy correction V-trace (Espeholt et al., 2018, arXiv 1802.01561).

    A separate process plays (`collection.async_unroll`) with a policy mu that is some iterations older than the policy
    pi that learns. It also records log mu(a|s). The loss is A2C's with V-trace targets v and advantages A
    (`rl.returns.v_trace`) of the ratios pi(a|s) / mu(a|s):

        L = -log pi(a|s) * A + value_coefficient * (v - V(s))^2 - entropy_coefficient * H(pi(.|s))

    without a gradient through v, A and the ratios. Played by the policy that learns (`source.async_unroll=false`), all
    ratios of the first update are 1, and it is A2C's up to rounding."""

    def targets(self, rollout: Rollout) -> dict[str, Tensor]:
        """log mu(a|s) of an unroll, `[T, B]`."""
        with torch.no_grad():
            return {"log_prob": self.heads.evaluate_actions(rollout.obs, rollout.action)[0]}

    def _fit(self, sample: Sample, log_prob: Tensor, value: Tensor) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Losses and metrics. actor_kl estimates KL(mu || pi) as PPO's approx_kl does; clip_fraction is the share of
        ratios above rho_clip."""
        rollout, next_value = sample.rollout, self.heads.value(sample.rollout.next_obs)
        ends = rollout.terminated, rollout.truncated
        log_ratio, given = log_prob.detach() - sample.targets["log_prob"], self.config
        ratio, form = log_ratio.exp(), (given.trace_lambda, given.rho_clip, given.c_clip)
        returns, advantage = v_trace(rollout.reward, value, next_value, *ends, self._discount, ratio, *form)
        metrics = {
            "actor_kl": self._per_learner(ratio - 1 - log_ratio),
            "clip_fraction": self._per_learner((ratio > given.rho_clip).float()),
        }
        return -log_prob * self.heads.scaled(advantage), returns, metrics
