"""Synchronous advantage actor-critic (A2C; Mnih et al., 2016), and proximal policy optimisation (PPO; Schulman et al.,
2017, arXiv 1707.06347), many learners as one batched program.

Loss of one learner over its W windows of T steps, averaged over the T * W samples:

    L = -log pi(a|s) * (R - V(s)) + value_coefficient * (R - V(s))^2 - entropy_coefficient * H(pi(.|s))

with R the longest n-step return (`rl.returns`) and no gradient through the advantage. The losses of all learners are
summed and gradients are clipped per learner, so learner k alone equals learner k among others. The weights of samples
are not read: an on-policy learner gives all its windows the same weight.
"""

from typing import Any, Literal

import torch
from torch import Tensor, nn

from icrl.config.options import option
from icrl.contracts import Learned, Rollout, Sample, Step
from icrl.envs.core import look_up
from icrl.nn.networks import StackedAdam, StackedNetwork, StackedPointNetwork
from icrl.randomness import cumulative, draw, draw_possible
from icrl.rl.returns import gae, n_step_returns
from icrl.sources import source
from icrl.sources.learners import Learner, table_rows
from icrl.sources.options import Conflicts, NetworkConfig, NotNegative, Positive, named
from icrl.spaces import EnvSpec

_IMPOSSIBLE = -1e30  # logit of an illegal action: its probability is 0, and p log p stays finite


class ActorCriticConfig(NetworkConfig):
    entropy_coefficient: NotNegative = option(0.01, "weight of the entropy bonus")
    value_coefficient: NotNegative = option(0.99, "weight of the value loss")


class A2CConfig(ActorCriticConfig):
    name: Literal["a2c"] = named("a2c")

    def conflicts(self) -> Conflicts:
        yield from super().conflicts()
        yield self.unroll_length % 1, "{unroll_length}: {name} learns on-policy, so it must be a whole number"
        yield self.async_unroll, "{async_unroll} plays with an older policy, but {name} learns on-policy"


class TableHeads:
    """Actors and critics of L learners as tables over all L * S observations. They are constant between updates, so one
    table serves acting and the loss of the next update, whose gradient flows through it."""

    def __init__(self, spec: EnvSpec, hidden_size: int, seeds: Tensor, device: torch.device) -> None:
        self._parts = [spec.num_actions, 1]  # the actor's logits, then the critic's value
        network = StackedNetwork(len(seeds), spec.num_obs, sum(self._parts), hidden_size, seeds)
        self.network: nn.Module = network.to(device)
        self._rows = table_rows(len(seeds), spec.num_obs, device)
        self.refresh()

    def refresh(self) -> None:
        """Compute the tables, after each change of the network. The rows of observations are the last axis, because
        operations over it are faster than operations over the few actions."""
        logits, values = self.network().permute(2, 0, 1).flatten(1).split(self._parts)  # [A, L * S], [1, L * S]
        self._values, self._log_policy = values[0], logits.log_softmax(0)
        self._cumulative = cumulative(self._log_policy.detach().exp(), 0)  # [A - 1, L * S]

    def act(self, obs: Tensor, noise: Tensor) -> Tensor:
        return draw(self._cumulative.index_select(1, self._rows(obs)), noise, 0)

    def probabilities(self, obs: Tensor) -> Tensor:
        """Distribution that `act` samples from, `[B, A]`."""
        return self._log_policy.detach()[:, self._rows(obs)].exp().T

    def evaluate_actions(self, obs: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Log probabilities of actions, values, and entropies of the policy, `[T, B]` each, with gradient."""
        log_policy, row = self._log_policy, self._rows(obs)  # [T, B]
        entropies = -(log_policy.exp() * log_policy).sum(0)  # [L * S]
        log_prob = look_up(log_policy.flatten(), row + action * log_policy.shape[1])
        return log_prob, look_up(self._values, row), look_up(entropies, row)

    def value(self, obs: Tensor) -> Tensor:
        """Values `[T, B]`, without gradient."""
        return look_up(self._values.detach(), self._rows(obs))

    def outputs(self) -> dict[str, Tensor]:
        return {"log_policy": self._log_policy.detach().T, "values": self._values.detach()}


class PointHeads:
    """The same for point sets: networks that run on each observation. Illegal actions have probability 0."""

    def __init__(self, spec: EnvSpec, hidden_size: int, seeds: Tensor, device: torch.device) -> None:
        self.network: nn.Module = StackedPointNetwork(spec, spec.num_actions + 1, hidden_size, seeds).to(device)
        self._spec = spec

    def refresh(self) -> None: ...

    def act(self, obs: Tensor, noise: Tensor) -> Tensor:
        return draw_possible(self.probabilities(obs), noise)

    @torch.no_grad()
    def probabilities(self, obs: Tensor) -> Tensor:
        return self._log_policy_and_value(obs[None])[0][0].exp()

    def evaluate_actions(self, obs: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        log_policy, value = self._log_policy_and_value(obs)
        entropy = -(log_policy.exp() * log_policy).sum(-1)
        return log_policy.gather(-1, action[..., None])[..., 0], value, entropy

    @torch.no_grad()
    def value(self, obs: Tensor) -> Tensor:
        return self.network(obs)[..., -1]

    def outputs(self) -> dict[str, Tensor]:
        return {}

    def _log_policy_and_value(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        outputs = self.network(obs)
        logits = self._spec.legal_of(outputs[..., :-1], obs, _IMPOSSIBLE)
        return logits.log_softmax(-1), outputs[..., -1]


@source("a2c", A2CConfig)
class A2C(Learner):
    """Base of actor-critics; another one overrides `targets` and `_fit`."""

    saved = ("network", "optimizer")

    def __init__(self, config: ActorCriticConfig, spec: EnvSpec, seeds: Tensor, device: torch.device) -> None:
        super().__init__(config, spec, seeds, device)
        self.heads = (PointHeads if spec.obs_shape else TableHeads)(spec, config.hidden_size, seeds, device)
        self.network, self.outputs, self.refresh = self.heads.network, self.heads.outputs, self.heads.refresh
        self.optimizer = StackedAdam(self.network, config)

    def act(self, carry: Any, step: Step, noise: Tensor) -> tuple[Tensor, Any]:
        return self.heads.act(step.obs, noise), carry

    def action_probabilities(self, step: Step) -> Tensor:
        return self.heads.probabilities(step.obs)

    def update(self, sample: Sample) -> Learned:
        """One gradient step of every learner."""
        log_prob, value, entropies = self.heads.evaluate_actions(sample.rollout.obs, sample.rollout.action)
        actor_loss, returns, metrics = self._fit(sample, log_prob, value.detach())
        policy_loss, value_loss = self._per_learner(actor_loss), self._per_learner((returns - value).square())
        entropy = self._per_learner(entropies)
        rates = {name: self.rate(name) for name in ("learning_rate", "entropy_coefficient")}
        loss = policy_loss + self.rate("value_coefficient") * value_loss - rates["entropy_coefficient"] * entropy
        norm = self.optimizer.descend(loss, rates["learning_rate"])
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
        return -log_prob * (returns - value), returns, {}


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
