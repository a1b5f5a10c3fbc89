"""Actor and critic of A2C and PPO: tables where an observation is one number, networks where it is a point set."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from icrl.contracts import EnvSpec
from icrl.nn.networks import StackedNetwork, StackedPointNetwork, look_up
from icrl.randomness import cumulative, draw, draw_possible
from icrl.sources.learners import LearnerRows

_IMPOSSIBLE = -1e30  # logit of an illegal action: its probability is 0, and p log p stays finite


class ActionEvaluation(NamedTuple):
    """Values of transitions, `[T, B]` each, with gradient."""

    log_prob: Tensor  # of the action
    value: Tensor
    entropy: Tensor  # of the policy


class TableHeads:
    """Policies and values of L learners, tabulated over all L * S observations.

    They are constant between updates, so one table serves acting and the loss of the next update, whose gradient flows
    through it. The network must not change without a call of `refresh`."""

    def __init__(self, spec: EnvSpec, hidden_size: int, seeds: Tensor, device: torch.device) -> None:
        """Learner k's initial parameters are a function of `seeds[k]` alone."""
        outputs = spec.num_actions + 1  # the actor's logits, then the critic's value
        self.network: nn.Module = StackedNetwork(len(seeds), spec.num_obs, outputs, hidden_size, seeds).to(device)
        self._rows = LearnerRows(len(seeds), spec.num_obs, device)
        self.refresh()

    def refresh(self) -> None:
        """Compute the tables from the network."""
        outputs = self.network()
        self._values = outputs[..., -1].flatten()
        self._log_policy = outputs[..., :-1].flatten(0, 1).log_softmax(-1)  # [L * S, A]
        self._cumulative = cumulative(self._log_policy.detach().exp())  # [L * S, A - 1]

    def act(self, obs: Tensor, noise: Tensor) -> Tensor:
        """Actions `[B]`, sampled by inverting the cumulative distribution at `noise` `[B]`."""
        return draw(self._cumulative[self._rows.of(obs)], noise)

    def probabilities(self, obs: Tensor) -> Tensor:
        """Distribution that `act` samples from, `[B, A]`."""
        return self._log_policy.detach()[self._rows.of(obs)].exp()

    def evaluate_actions(self, obs: Tensor, action: Tensor) -> ActionEvaluation:
        log_policy, row = self._log_policy, self._rows.of(obs)  # [T, B]
        entropies = -(log_policy.exp() * log_policy).sum(-1)  # [L * S]
        log_prob = look_up(log_policy.flatten(), row * log_policy.shape[-1] + action)
        return ActionEvaluation(log_prob, look_up(self._values, row), look_up(entropies, row))

    def value(self, obs: Tensor) -> Tensor:
        """Values `[T, B]`, without gradient."""
        return self._values.detach()[self._rows.of(obs)]

    def outputs(self) -> dict[str, Tensor]:
        return {"log_policy": self._log_policy.detach(), "values": self._values.detach()}


class PointHeads:
    """The same for point sets: the networks run on each observation, and illegal actions have probability 0."""

    def __init__(self, spec: EnvSpec, hidden_size: int, seeds: Tensor, device: torch.device) -> None:
        self.network: nn.Module = StackedPointNetwork(spec, spec.num_actions + 1, hidden_size, seeds).to(device)
        self._spec = spec

    def refresh(self) -> None: ...

    def act(self, obs: Tensor, noise: Tensor) -> Tensor:
        return draw_possible(self.probabilities(obs), noise)

    @torch.no_grad()
    def probabilities(self, obs: Tensor) -> Tensor:
        return self._log_policy_and_value(obs[None])[0][0].exp()

    def evaluate_actions(self, obs: Tensor, action: Tensor) -> ActionEvaluation:
        log_policy, value = self._log_policy_and_value(obs)
        entropy = -(log_policy.exp() * log_policy).sum(-1)
        return ActionEvaluation(log_policy.gather(-1, action[..., None])[..., 0], value, entropy)

    @torch.no_grad()
    def value(self, obs: Tensor) -> Tensor:
        return self._log_policy_and_value(obs)[1]

    def outputs(self) -> dict[str, Tensor]:
        return {}

    def _log_policy_and_value(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """`[T, B, A]` and `[T, B]` for observations `[T, B, K]`."""
        outputs = self.network(obs)
        logits = self._spec.legal_of(outputs[..., :-1], obs, _IMPOSSIBLE)
        return logits.log_softmax(-1), outputs[..., -1]
