"""Heads of actor-critics that run a network on each observation: over vectors and images, for any actions.

T steps, B streams, L learners, A actions, K numbers in an observation, P parameters of a policy, k numbers of a sample.
"""

import math
from typing import Any

import torch
from gymnasium.spaces import Box, Discrete, Space
from torch import Tensor, nn
from torch.nn.functional import one_hot

from icrl.config.options import refuse
from icrl.extensions.vectors.actions import head_of
from icrl.extensions.vectors.clipped_gaussian import ClippedGaussian
from icrl.extensions.vectors.stacked_convolutions import StackedConvolutions
from icrl.extensions.vectors.stacked_mlp import StackedActorCritic
from icrl.nn.heads import Categorical, Head
from icrl.randomness import several
from icrl.sources.heads import Heads, body, heads_for
from icrl.spaces import EnvSpec, is_image

IMPOSSIBLE = -1e30  # logit of an illegal action: its probability is 0, and p log p stays finite


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


@heads_for(lambda spec: not spec.points[0])
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
        policy = ClippedGaussian(space) if is_box else head_of(space)
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


@body("cnn")
class ImageHeads(VectorHeads):
    """Heads over what convolutions make of images."""

    def _make_body(self, num_inputs: int, hidden_size: int, seeds: Tensor) -> nn.Module:
        space = self._spec.observation_space
        refuse(not is_image(space), f"source.body=cnn reads images, not {space}: give source.body=mlp")
        return StackedConvolutions(self._spec.obs_shape, hidden_size, seeds)

    def _rows(self, obs: Tensor) -> Tensor:
        return self.network.body(obs)

    def observe(self, obs: Tensor, returns: Tensor) -> None:
        self.network.observe(None, returns)
