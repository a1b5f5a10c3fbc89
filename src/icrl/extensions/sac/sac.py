"""Soft actor-critic (SAC; Haarnoja et al., 2018, arXiv 1801.01290 and 1812.05905), many learners as one batched
program.

Losses of one learner over its W windows of T steps, each averaged over the T * W samples times their weights, with
a ~ pi(.|s) and a' ~ pi(.|s') new actions, f_1 and f_2 the outputs of twin critics, f'_i those of their targets, and
M and D running mean and deviation of the targets y:

    y          = r + discount * (0 if the task ended, else M + D * (min_i f'_i(s', a') - temperature * log pi(a'|s')))
    L_critics  = mean_i (f_i(s, action) - (y - M) / D)^2
    L_actor    = temperature * log pi(a|s) - min_i f_i(s, a),    no gradient of the temperature and the critics
    L_temp     = -log temperature * (log pi(a|s) - k)

    f'_i <- f'_i + target_update_rate * (f_i - f'_i),    parameter by parameter, after each update

A truncated episode is bootstrapped. Policies are Gaussians squashed into the Box (`SquashedGaussian`), and all
densities are in units of half the distance between the bounds. The losses of all learners are summed and gradients are
clipped per learner, so learner k alone equals learner k among others.

N rows of a learner, B = L * N streams, K numbers in an observation, k in an action, P policy outputs.
"""

import copy
import math
from typing import Annotated, Any, Literal

import torch
from gymnasium.spaces import Box, Space
from torch import Generator, Tensor, nn

from icrl.config.options import Rate, option, refuse
from icrl.contracts import Sample, Step, UpdateResult
from icrl.extensions.value_sources.memory import Memory
from icrl.extensions.value_sources.options import ReplayConfig
from icrl.extensions.value_sources.targets import polyak_update
from icrl.extensions.vectors.actions import SquashedGaussian
from icrl.extensions.vectors.heads import VectorHeads
from icrl.extensions.vectors.stacked_mlp import Normalised, StackedMLP, by_learner, by_stream, orthogonal
from icrl.nn.gpt import GPTConfig
from icrl.nn.heads import make_head
from icrl.nn.networks import stacked
from icrl.randomness import mix, normal, uniform
from icrl.sources import source
from icrl.sources.a2c import ActorCritic
from icrl.sources.options import NetworkConfig, named
from icrl.spaces import EnvSpec

_TEMPERATURE = 0.1  # first weight of the entropy, in deviations of the targets
TARGET_ENTROPY = -1.0  # of each number of an action, whose bounds count as -1 and 1


class SACConfig(ReplayConfig, NetworkConfig):
    name: Literal["sac"] = named("sac")
    target_update_rate: Annotated[Any, Rate(gt=0, le=1)] = option(0.005, "step of the target networks (1: a copy)")

    former = {"initial_temperature": 0.1, "learn_temperature": True, "target_entropy": TARGET_ENTROPY}


class StackedSoftActorCritic(Normalised):
    """Actors, twin critics and temperatures of L learners. Perceptrons have two hidden layers with rectifiers. A critic
    also reads an action of k numbers in [-1, 1], and its output is in running deviations of its targets, from their
    running mean."""

    def __init__(self, num_inputs: int, num_outputs: int, num_numbers: int, hidden_size: int, seeds: Tensor) -> None:
        super().__init__(len(seeds), num_inputs)
        sizes = (num_inputs, hidden_size, hidden_size)

        def parameters(generator: Generator) -> list[Tensor]:
            policy = orthogonal((*sizes, num_outputs), 0.01, generator)
            critic_sizes = (num_inputs + num_numbers, *sizes[1:], 1)
            twins = zip(*(orthogonal(critic_sizes, 1.0, generator) for _ in range(2)), strict=True)
            return policy + [torch.stack(twin) for twin in twins]

        weights = stacked(seeds, parameters)
        self.actor, self.critics = StackedMLP(weights[:3], torch.relu_), StackedMLP(weights[3:], torch.relu_)
        self.log_temperature = nn.Parameter(torch.zeros(len(seeds), 1, 1))

    def policy(self, obs: Tensor) -> Tensor:
        """Outputs of the policies `[T, B, P]` for observations `[T, B, K]`."""
        return by_stream(self.actor(self.normalised(obs)), len(obs))

    def as_values(self, outputs: Tensor) -> Tensor:
        """Values `[L, N]`, in the unit of rewards, for outputs of critics."""
        return self.returns.mean[..., 0] + self.returns.deviation()[..., 0] * outputs

    def as_outputs(self, values: Tensor) -> Tensor:
        """Inverse of `as_values`."""
        return (values - self.returns.mean[..., 0]) / self.returns.deviation()[..., 0]


def twin_values(critics: StackedMLP, x: Tensor, action: Tensor, *, constant: bool = False) -> Tensor:
    """Outputs of both critics, `[L, 2, N]`, for normalised observations `[L, N, K]` and actions `[L, N, k]`."""
    inputs = torch.cat([x, action], -1)[:, None].expand(-1, 2, -1, -1).flatten(0, 1)
    return critics(inputs, constant=constant)[..., 0].unflatten(0, (-1, 2))


class SoftHeads(VectorHeads):
    """Squashed Gaussian policies and twin critics over vectors."""

    policy: SquashedGaussian

    def _made(self, space: Space[Any], num_inputs: int, hidden_size: int, seeds: Tensor) -> tuple[Any, nn.Module]:
        assert isinstance(space, Box)
        policy = SquashedGaussian(space)
        sizes = policy.num_parameters, policy.num_noise
        return policy, StackedSoftActorCritic(num_inputs, *sizes, hidden_size, seeds)

    def inputs(self, obs: Tensor) -> Tensor:
        """Normalised observations `[L, N, K]`, from `[T, B, ...]`."""
        return self.network.normalised(self._rows(obs))

    def uniform(self, noise: Tensor) -> Tensor:
        """Actions `[B, k]`, uniform in the Box, given a uniform number each `[B]`."""
        return self.policy.from_units(2 * self._each(noise) - 1)


@source("sac", SACConfig)
class SAC(ActorCritic):
    """Before its first update a learner plays uniformly random actions."""

    experience = Memory
    saved = ("network", "target", "optimizer", "updates", "seeds")
    heads: SoftHeads

    def __init__(self, config: SACConfig, spec: EnvSpec, seeds: Tensor, device: torch.device) -> None:
        super().__init__(config, spec, seeds, device)
        nn.init.constant_(self.network.log_temperature, math.log(_TEMPERATURE))
        self.target = copy.deepcopy(self.network.critics).requires_grad_(False)
        self.updates, self.seeds = 0, seeds

    @staticmethod
    def heads_of(config: Any, spec: EnvSpec) -> type[SoftHeads]:
        return SoftHeads

    @classmethod
    def check_spaces(cls, name: str, spec: EnvSpec) -> None:
        space, told = spec.action_space, "; source=ppo and source=dqn take discrete actions"
        refuse(not isinstance(space, Box), f"source.name={name} needs continuous actions in a Box, not {space}{told}")
        make_head(GPTConfig(), spec)  # raises

    def act(self, carry: Any, step: Step, noise: Tensor) -> tuple[Tensor, Any]:
        return super().act(carry, step, noise) if self.updates else (self.heads.uniform(noise), carry)

    def update(self, sample: Sample) -> UpdateResult:
        """One gradient step of every learner. The same normal numbers make a and a'."""
        rollout, net, policy = sample.rollout, self.network, self.heads.policy
        num_steps, learners = len(rollout.obs), self.num_learners
        x, action = self.heads.inputs(rollout.obs), by_learner(policy.in_units(rollout.action), learners)
        weight = by_learner(sample.weight.expand(num_steps, -1), learners)  # [L, N]
        noise, temperature = self._noise(x.shape[1]), net.log_temperature.detach().exp()[..., 0]  # [L, 1]
        target = self._targets(sample, noise, temperature)
        fitted = by_learner(target, learners)
        error = twin_values(net.critics, x, action) - net.as_outputs(fitted)[:, None]  # [L, 2, N]
        drawn, log_prob = policy.draw_in_units(net.actor(x), noise)
        value = twin_values(net.critics, x, drawn, constant=True).amin(1)
        critic_loss = (weight * error.square().mean(1)).mean(1)
        policy_loss = (weight * (temperature * log_prob - value)).mean(1)
        mean_weight = weight.mean(1)  # not 1 with priorities or recorded histories
        entropy = -(weight * log_prob.detach()).mean(1) / mean_weight
        excess = entropy - TARGET_ENTROPY * policy.num_noise
        of_temperature = net.log_temperature[:, 0, 0] * mean_weight * excess
        norm = self.optimizer.descend(critic_loss + policy_loss + of_temperature, self.rate("learning_rate"))
        polyak_update(self.target, net.critics, self.rate("target_update_rate"))
        self.heads.observe(rollout.obs, lambda: target)
        self.updates += 1
        td_error = by_stream(error.detach().abs().mean(1), num_steps).mean(0)
        metrics = {"value_loss": critic_loss, "policy_loss": policy_loss, "entropy": entropy, "gradient_norm": norm}
        metrics |= {"temperature": temperature[:, 0], "value": fitted.mean(1)}
        return UpdateResult({name: value.detach() for name, value in metrics.items()}, td_error)

    @torch.no_grad()
    def _targets(self, sample: Sample, noise: Tensor, temperature: Tensor) -> Tensor:
        """Targets y of the critics, `[T, L * W]`."""
        rollout, net = sample.rollout, self.network
        x = self.heads.inputs(rollout.next_obs)
        action, log_prob = self.heads.policy.draw_in_units(net.actor(x), noise)
        ahead = net.as_values(twin_values(self.target, x, action).amin(1) - temperature * log_prob)
        ahead = by_stream(ahead, len(rollout.obs)).masked_fill(rollout.terminated, 0.0)
        return rollout.reward + self._discount * ahead

    def _noise(self, number: int) -> Tensor:
        """Standard normal numbers of this update, `[L, number, k]`, a function of each learner's seed."""
        size = self.heads.policy.num_noise
        lanes = torch.arange(number * size, device=self.device)
        return normal(uniform(mix(self.seeds, self.updates)[:, None], lanes)).unflatten(1, (number, size))
