"""Heads of actor-critics: networks of many learners with their policies and values, one class per kind of observation.
Those of one integer are here; extensions have others.

T steps, B streams, L learners, S observations, A actions.
"""

from collections.abc import Callable
from typing import Any

import torch
from gymnasium.spaces import Discrete
from torch import Tensor

from icrl.config.modules import BySpec, load_plugins, registrar
from icrl.envs.core import look_up
from icrl.nn.networks import StackedNetwork
from icrl.randomness import cumulative, draw
from icrl.sources.learners import table_rows
from icrl.spaces import EnvSpec

heads_for = BySpec("actor-critic")
BODIES: dict[str, Any] = {}  # classes of heads under the decorator `body`, by `source.body`


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

    def observe(self, obs: Tensor, returns: Callable[[], Tensor]) -> None:
        """Take in observations `[T, B, ...]` that the learners have learned from, and `returns()` `[T, B]`, in whose
        deviations they learn."""

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


def body(name: str) -> Callable[[Any], Any]:
    """Decorator of the class of the heads that `source.body=name` stands for."""
    return registrar("body", name, BODIES, built_in=("mlp",))


def bodies() -> list[str]:
    """Values of `source.body`."""
    load_plugins()
    return ["mlp", *BODIES]


def heads_of(spec: EnvSpec, body: str = "mlp") -> type[Any]:
    """Class of the heads for the spaces of `spec`: tables if observations and actions can be listed, else those of an
    extension; or those with another `body`. Raises `ConfigError` if there are none."""
    if body != "mlp":
        return BODIES[body]
    listed = isinstance(spec.observation_space, Discrete) and isinstance(spec.action_space, Discrete)
    return TableHeads if listed else heads_for.of(spec)
