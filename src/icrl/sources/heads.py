"""Heads of actor-critics: networks of many learners with their policies and values, one class per kind of observation.
The distribution of an action is one of `nn.heads`.

T steps, B streams, L learners, S observations, A actions, P parameters of a policy.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from gymnasium.spaces import Box, Discrete, Space
from torch import Tensor, nn
from torch.nn.functional import one_hot

from icrl.config.options import refuse
from icrl.envs.core import look_up
from icrl.nn.clipped_gaussian import ClippedGaussian
from icrl.nn.encoders import is_image
from icrl.nn.heads import Categorical, Head, make_head
from icrl.nn.networks import StackedNetwork
from icrl.nn.stacked_bodies import StackedConvolutions, StackedGRU
from icrl.nn.stacked_mlp import StackedActorCritic
from icrl.randomness import cumulative, draw, several
from icrl.sources.learners import table_rows
from icrl.spaces import EnvSpec

_ELSEWHERE: list[tuple[Callable[[EnvSpec], bool], Any]] = []  # classes under the decorator `heads_for`
IMPOSSIBLE = -1e30  # logit of an illegal action: its probability is 0, and p log p stays finite


class Heads:
    """Policies and values of L learners over observations `[..., B]` or `[..., B, ...]`.

    With a memory they are over what it makes of them: `unroll` gives what all other methods take for observations."""

    network: Any  # module whose parameters have a leading learner axis
    memory_size = 0  # numbers in the memory of a stream (0: there is none)

    def unroll(self, obs: Tensor, timestep: Tensor, memory: Any) -> Tensor:
        """Observations `[T, B, ...]` with what is remembered, given their time steps `[T, B]` and the `memory`
        `[B, memory_size]` before them. The first `memory_size` numbers of a row are the memory after it."""
        return obs

    def ahead(self, inputs: Tensor, next_obs: Tensor) -> Tensor:
        """The observations `next_obs` `[T, B, ...]` after the rows `inputs` of `unroll`, in the same episodes."""
        return next_obs

    def refresh(self) -> None:
        """Compute what depends on the network, after each change of it."""

    def act(self, obs: Tensor, noise: Tensor) -> Tensor:
        """Sample actions for observations `[B, ...]`, given a uniform number each `[B]`."""
        raise NotImplementedError

    def mode(self, obs: Tensor) -> Tensor:
        """The most probable actions for observations `[B, ...]`; of a Box, the means inside the bounds."""
        raise NotImplementedError

    def probabilities(self, obs: Tensor) -> Tensor:
        """Distribution that `act` samples from, `[B, A]`, if actions are Discrete."""
        raise NotImplementedError

    def evaluate_actions(self, obs: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Log probabilities of actions, values, and entropies of the policy, `[T, B]` each, with gradient."""
        raise NotImplementedError

    def value(self, obs: Tensor) -> Tensor:
        """Values `[T, B]`, without gradient."""
        raise NotImplementedError

    def outputs(self) -> dict[str, Tensor]:
        """See `Learner.outputs`."""
        return {}

    def observe(self, obs: Tensor, returns: Tensor) -> None:
        """Take in observations `[T, B, ...]` and returns `[T, B]` that the learners have learned from."""

    def scaled(self, errors: Tensor) -> Tensor:
        """Errors of values, or advantages, `[T, B]` in the unit of the losses."""
        return errors


class TableHeads(Heads):
    """Actors and critics of L learners as tables over all L * S observations. They are constant between updates, so one
    table serves acting and the loss of the next update, whose gradient flows through it."""

    def __init__(self, spec: EnvSpec, hidden_size: int, seeds: Tensor, device: torch.device) -> None:
        self._parts = [spec.num_actions, 1]  # the actor's logits, then the critic's value
        network = StackedNetwork(len(seeds), spec.num_obs, sum(self._parts), hidden_size, seeds)
        self.network = network.to(device)
        self._rows = table_rows(len(seeds), spec.num_obs, device)
        self.refresh()

    def refresh(self) -> None:
        """Compute the tables. The rows of observations are the last axis, because operations over it are faster than
        operations over the few actions."""
        logits, values = self.network.table().split(self._parts)  # [A, L * S and more], [1, L * S and more]
        self._values, self._log_policy = values[0], logits.log_softmax(0)
        self._cumulative = cumulative(self._log_policy.detach().exp(), 0)  # [A - 1, L * S]

    def act(self, obs: Tensor, noise: Tensor) -> Tensor:
        return draw(self._cumulative.index_select(1, self._rows(obs)), noise, 0)

    def probabilities(self, obs: Tensor) -> Tensor:
        return self._log_policy.detach()[:, self._rows(obs)].exp().T

    def evaluate_actions(self, obs: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        log_policy, row = self._log_policy, self._rows(obs)  # [T, B]
        entropies = -(log_policy.exp() * log_policy).sum(0)  # [L * S]
        log_prob = look_up(log_policy.flatten(), row + action * log_policy.shape[1])
        return log_prob, look_up(self._values, row), look_up(entropies, row)

    def value(self, obs: Tensor) -> Tensor:
        return look_up(self._values.detach(), self._rows(obs))

    def outputs(self) -> dict[str, Tensor]:
        num_rows = self.network.embedding.shape[:2].numel()  # the table has more columns
        return {"log_policy": self._log_policy.detach()[:, :num_rows].T, "values": self._values.detach()[:num_rows]}


class NetworkHeads(Heads):
    """Networks that run on each observation. A subclass sets `network` and `policy`, and gives `_both`."""

    policy: Head  # from parameters to actions

    def _both(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        """Parameters of the policies `[T, B, P]` and values `[T, B]` for observations `[T, B, ...]`."""
        raise NotImplementedError

    def _parameters(self, obs: Tensor) -> Tensor:
        """Parameters of the policies `[B, P]` for observations `[B, ...]`."""
        return self._both(obs[None])[0][0]

    @torch.no_grad()
    def act(self, obs: Tensor, noise: Tensor) -> Tensor:
        return self.policy.sample(self._parameters(obs), self._each(noise))

    def _each(self, noise: Tensor) -> Tensor:
        """Uniform numbers for a sample, `[B, k]`, from `noise` `[B]`."""
        number = self.policy.num_noise
        return several(noise, number) if number > 1 else noise[:, None]

    @torch.no_grad()
    def mode(self, obs: Tensor) -> Tensor:
        return self.policy.mode(self._parameters(obs))

    @torch.no_grad()
    def probabilities(self, obs: Tensor) -> Tensor:
        if not isinstance(self.policy, Categorical):
            raise TypeError("only Discrete actions have probabilities")
        return self._parameters(obs).softmax(-1)

    def evaluate_actions(self, obs: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        parameters, value = self._both(obs)
        return self.policy.log_prob(parameters, action), value, self.policy.entropy(parameters)

    @torch.no_grad()
    def value(self, obs: Tensor) -> Tensor:
        return self._both(obs)[1]


class VectorHeads(NetworkHeads):
    """Heads over vectors: an observation is a row of numbers, whatever its shape; one of S integers is one-hot."""

    def __init__(self, spec: EnvSpec, hidden_size: int, seeds: Tensor, device: torch.device) -> None:
        self._spec = spec
        self._num_obs = spec.num_obs if isinstance(spec.plain_space, Discrete) else 0
        self._num_flags = spec.num_actions if spec.has_flags else 0
        num_inputs = self._num_obs + self._num_flags if self._num_obs else math.prod(spec.obs_shape)
        self.policy, network = self._made(spec.action_space, num_inputs, hidden_size, seeds)
        self.policy, self.network = self.policy.to(device), network.to(device)

    def _made(self, space: Space[Any], num_inputs: int, hidden_size: int, seeds: Tensor) -> tuple[Any, nn.Module]:
        """Policy and network for observations of `num_inputs` numbers."""
        is_box = isinstance(space, Box)
        policy = ClippedGaussian(space) if is_box else make_head(space)
        number = policy.num_parameters
        sizes = (number // 2, number // 2) if is_box else (number, 0)  # deviations do not depend on the observation
        body = self._make_body(num_inputs, hidden_size, seeds)
        num_inputs = hidden_size + self._num_flags if body else num_inputs
        return policy, StackedActorCritic(num_inputs, *sizes, hidden_size, seeds, body)

    def _make_body(self, num_inputs: int, hidden_size: int, seeds: Tensor) -> nn.Module | None:
        """Layers from observations to the `hidden_size` inputs of the perceptrons (None: these read observations)."""
        return None

    def _rows(self, obs: Tensor) -> Tensor:
        """Inputs of the perceptrons for observations, `[T, B, ...] -> [T, B, K]`."""
        if not self._num_obs:
            return obs.flatten(2).float()
        return self._with_flags(one_hot(self._spec.plain(obs), self._num_obs).float(), obs)

    def _with_flags(self, rows: Tensor, obs: Tensor) -> Tensor:
        """Rows `[..., K]` that end with the flags of legal actions, if observations do."""
        return torch.cat([rows, obs[..., -self._spec.num_actions :].float()], -1) if self._spec.has_flags else rows

    def _both(self, obs: Tensor) -> tuple[Tensor, Tensor]:
        parameters, values = self.network(self._rows(obs))
        return self._spec.legal_of(parameters, obs, IMPOSSIBLE), values

    def _parameters(self, obs: Tensor) -> Tensor:
        return self._spec.legal_of(self.network.policy(self._rows(obs[None]))[0], obs, IMPOSSIBLE)

    @torch.no_grad()
    def value(self, obs: Tensor) -> Tensor:
        return self.network.value(self._rows(obs))

    def observe(self, obs: Tensor, returns: Tensor) -> None:
        self.network.observe(self._rows(obs), returns)

    def scaled(self, errors: Tensor) -> Tensor:
        return self.network.in_deviations(errors)


class RecurrentHeads(VectorHeads):
    """Heads over the state of a GRU that has read the observations of the episode so far."""

    def _make_body(self, num_inputs: int, hidden_size: int, seeds: Tensor) -> nn.Module:
        self.memory_size = hidden_size
        return StackedGRU(num_inputs, hidden_size, seeds)

    def unroll(self, obs: Tensor, timestep: Tensor, memory: Tensor) -> Tensor:
        return self._with_flags(self.network.body(super()._rows(obs), timestep == 0, memory), obs)

    @torch.no_grad()
    def ahead(self, inputs: Tensor, next_obs: Tensor) -> Tensor:
        states = self.network.body.after(inputs[..., : self.memory_size], super()._rows(next_obs))
        return self._with_flags(states, next_obs)

    def _rows(self, obs: Tensor) -> Tensor:
        return obs

    def observe(self, obs: Tensor, returns: Tensor) -> None:
        self.network.body.observe(super()._rows(obs))
        self.network.observe(None, returns)


class ImageHeads(VectorHeads):
    """Heads over what convolutions make of images."""

    def _make_body(self, num_inputs: int, hidden_size: int, seeds: Tensor) -> nn.Module:
        return StackedConvolutions(self._spec.obs_shape, hidden_size, seeds)

    def _rows(self, obs: Tensor) -> Tensor:
        return self.network.body(obs)

    def observe(self, obs: Tensor, returns: Tensor) -> None:
        self.network.observe(None, returns)


def heads_for(reads: Callable[[EnvSpec], bool]) -> Callable[[Any], Any]:
    """Decorator of the heads of worlds that an extension knows, whose specs it `reads`."""

    def add(heads: Any) -> Any:
        _ELSEWHERE.append((reads, heads))
        return heads

    return add


def heads_of(spec: EnvSpec, body: str = "mlp") -> type[Any]:
    """Class of the heads for the spaces of `spec`: tables, or networks if observations or actions cannot be listed, or
    networks with another `body`. Raises `ConfigError` for a body that cannot read observations."""
    if body == "gru":
        return RecurrentHeads
    if body == "cnn":
        space = spec.observation_space
        refuse(not is_image(space), f"source.body=cnn reads images, not {space}: give source.body=mlp")
        return ImageHeads
    listed = isinstance(spec.observation_space, Discrete) and isinstance(spec.action_space, Discrete)
    own = next((heads for reads, heads in _ELSEWHERE if reads(spec)), None)
    return own or (TableHeads if listed else VectorHeads)
