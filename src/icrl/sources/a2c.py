"""Synchronous advantage actor-critic (A2C; Mnih et al., 2016, arXiv 1602.01783), many learners as one batched program.

Loss of one learner over its W windows of T steps, averaged over the T * W samples:

    L = -log pi(a|s) * (R - V(s)) + value_coefficient * (R - V(s))^2 - entropy_coefficient * H(pi(.|s))

with R the longest n-step return (`rl.returns`) and no gradient through the advantage. Policies and values are those of
`sources.heads`; over vectors, advantages and errors of values are in running deviations of R without its last value:
with it, values would grow with the deviations that scale them. The losses of all learners are summed and gradients are
clipped per learner, so learner k alone equals learner k among others. The weights of samples are not read: an on-policy
learner gives all its windows the same weight.
"""

from functools import partial
from typing import Annotated, Any, Literal

import torch
from gymnasium.spaces import Discrete
from torch import Tensor

from icrl.config.options import OR_ELSEWHERE, OneOf, option
from icrl.contracts import Rollout, Sample, Step, UpdateResult
from icrl.nn.networks import StackedAdam
from icrl.randomness import several
from icrl.rl.returns import backward_sums, n_step_returns
from icrl.sources import source
from icrl.sources.heads import bodies, heads_of
from icrl.sources.learners import Learner
from icrl.sources.options import Conflicts, NetworkConfig, NotNegative, named
from icrl.spaces import EnvSpec


class ActorCriticConfig(NetworkConfig):
    entropy_coefficient: NotNegative = option(0.01, "weight of the entropy bonus")
    value_coefficient: NotNegative = option(0.99, "weight of the value loss")
    body: Annotated[str, OneOf(("mlp",), r"\w+", "the name of a body of an extension, or of yours")] = option(
        "mlp",
        "network that reads observations. mlp: a table or an MLP, whichever fits the space; other names: a network "
        "with a memory of the episode, or for images",
    )

    def conflicts(self) -> Conflicts:
        yield self.body not in bodies(), f"$body: must be one of {', '.join(bodies())}{OR_ELSEWHERE}"
        yield from super().conflicts()


class A2CConfig(ActorCriticConfig):
    name: Literal["a2c"] = named("a2c")

    def conflicts(self) -> Conflicts:
        yield from super().conflicts()
        yield self.unroll_length % 1, "$unroll_length: $name learns on-policy, so it must be a whole number"
        yield self.async_unroll, "$async_unroll plays with an older policy, but $name learns on-policy"


class ActorCritic(Learner):
    """Learners that act by the policies of their `Heads`. A subclass gives `update`."""

    saved = ("network", "optimizer")
    heads: Any

    def __init__(self, config: NetworkConfig, spec: EnvSpec, seeds: Tensor, device: torch.device) -> None:
        super().__init__(config, spec, seeds, device)
        self.heads = self.heads_of(config, spec)(spec, config.hidden_size, seeds, device)
        self.has_memory = self.heads.memory_size > 0
        self.network, self.outputs, self.refresh = self.heads.network, self.heads.outputs, self.heads.refresh
        self.optimizer = StackedAdam(self.network, config.max_gradient_norm)

    @staticmethod
    def heads_of(config: Any, spec: EnvSpec) -> type[Any]:
        """Class of the heads in a world with `spec`."""
        return heads_of(spec, config.body)

    def initial_carry(self, num_streams: int) -> Any:
        """Memory of each stream, `[B, H]`; nothing without one."""
        nothing = super().initial_carry(num_streams)
        return torch.zeros(num_streams, self.heads.memory_size, device=self.device) if self.has_memory else nothing

    def remember(self, carry: Any, step: Step) -> tuple[Step, Any]:
        if not self.has_memory:
            return step, carry
        with torch.no_grad():
            inputs = self.heads.unroll(step.obs[None], step.timestep[None], carry)[0]
        return step._replace(obs=inputs), inputs[:, : self.heads.memory_size]

    def act(self, carry: Any, step: Step, noise: Tensor) -> tuple[Tensor, Any]:
        step, carry = self.remember(carry, step)
        return self.heads.act(step.obs, noise), carry

    def action_probabilities(self, step: Step) -> Tensor:
        return self.heads.probabilities(step.obs)

    def act_in_evaluation(self, step: Step, noise: Tensor, sample_probability: float) -> Tensor:
        if isinstance(self._spec.action_space, Discrete):
            return super().act_in_evaluation(step, noise, sample_probability)
        sampled = several(noise, 1, purpose=2) < sample_probability  # by luck of its own, as `act` draws by the noise
        sampled = sampled.view(-1, *(1 for _ in self._spec.action_shape))
        return torch.where(sampled, self.heads.act(step.obs, noise), self.heads.mode(step.obs))

    @torch.no_grad()
    def targets(self, rollout: Rollout, carry: Any = ()) -> dict[str, Tensor]:
        """With a memory, its state before each step, `[T, B, H]`."""
        if not self.has_memory:
            return {}
        after = self.heads.unroll(rollout.obs, rollout.timestep, carry)[:-1, :, : self.heads.memory_size]
        return {"memory": torch.cat([carry[None], after])}

    def _inputs(self, rollout: Rollout, targets: dict[str, Tensor]) -> Tensor:
        """Inputs of the heads at each step of windows. Gradients of a memory end where a window begins."""
        return self.heads.unroll(rollout.obs, rollout.timestep, targets["memory"][0] if self.has_memory else None)

    def _next_value(self, rollout: Rollout, inputs: Tensor) -> Tensor:
        """Values `[T, B]` of the observations after each step, before any reset."""
        return self.heads.value(self.heads.ahead(inputs, rollout.next_obs))

    def _descend(
        self,
        sample: Sample,
        actor_loss: Tensor,
        errors: Tensor,
        entropies: Tensor,
        metrics: dict[str, Tensor],
    ) -> UpdateResult:
        """One gradient step of every learner on the mean of actor_loss + value_coefficient * errors^2 -
        entropy_coefficient * entropies over its steps. All are `[T, B]` but `metrics` `[L]`, to which others are added;
        `errors` of the critic are brought to the unit of the losses."""
        policy_loss = self._per_learner(actor_loss)
        value_loss = self._per_learner(self.heads.scaled(errors).square())
        entropy = self._per_learner(entropies)
        rates = {name: self.rate(name) for name in ("learning_rate", "entropy_coefficient")}
        loss = policy_loss + self.rate("value_coefficient") * value_loss - rates["entropy_coefficient"] * entropy
        norm = self.optimizer.descend(loss, rates["learning_rate"])
        self.heads.observe(sample.rollout.obs, partial(self._scale, sample))
        self.refresh()
        metrics |= {name: torch.full_like(norm, rate) for name, rate in rates.items()}
        metrics |= {"policy_loss": policy_loss.detach(), "value_loss": value_loss.detach()}
        return UpdateResult(metrics | {"entropy": entropy.detach(), "gradient_norm": norm})

    def _scale(self, sample: Sample) -> Tensor:
        """Returns `[T, B]` whose deviation is the unit of the losses: of the rewards up to the end of the episode or of
        the window alone."""
        rollout = sample.rollout
        going = (rollout.terminated | rollout.truncated).logical_not()
        return backward_sums(rollout.reward, self._discount * going)


@source("a2c", A2CConfig)
class A2C(ActorCritic):
    """Learner with the loss above."""

    def update(self, sample: Sample) -> UpdateResult:
        """One gradient step of every learner."""
        rollout, inputs = sample.rollout, self._inputs(sample.rollout, sample.targets)
        log_prob, value, entropies = self.heads.evaluate_actions(inputs, rollout.action)
        ends = self._next_value(rollout, inputs), rollout.terminated, rollout.truncated
        returns = n_step_returns(rollout.reward, *ends, self._discount)
        actor_loss = -log_prob * self.heads.scaled(returns - value.detach())
        return self._descend(sample, actor_loss, returns - value, entropies, {})
