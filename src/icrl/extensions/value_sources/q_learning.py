"""Tabular Q-learning (Watkins, 1989) and deep Q-networks (DQN; Mnih et al., 2015), many learners as one table.

The target of a transition is computed from the table before the update:

    target = r + discount * max_a' Q(s', a'),    without the second term where the task ended

A cell (s, a) that several environments or steps of a learner visit moves once, towards the mean of its targets,
weighted as their windows are:

    Q(s, a) <- Q(s, a) + learning_rate * (mean target - Q(s, a))

With one environment and one step this is the rule of the thesis, and the order of transitions does not matter. Weights
count only where several targets meet in a cell, because a table has no gradient that they could scale.
"""

import copy
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import torch
from gymnasium.spaces import Discrete
from torch import Tensor, nn

from icrl.config.options import Rate, option, refuse
from icrl.contracts import Sample, Step, UpdateResult
from icrl.envs.core import look_up
from icrl.extensions.value_sources.memory import Memory
from icrl.extensions.value_sources.options import ReplayConfig
from icrl.extensions.value_sources.targets import double_q_target, polyak_update
from icrl.nn.networks import StackedAdam, StackedNetwork
from icrl.sources import source
from icrl.sources.learners import Learner, table_rows
from icrl.sources.options import NetworkConfig, Share, falling, named
from icrl.spaces import EnvSpec


class EpsilonGreedyConfig(ReplayConfig):
    epsilon: Share = option(falling(0.7), "probability of a uniformly random action")


class QLearningConfig(EpsilonGreedyConfig):
    name: Literal["q_learning"] = named("q_learning")
    learning_rate: Share = option(0.5, "step size towards the target")

    former = {"initial_value": 0.0}


class ActionValues(Learner):
    """Epsilon-greedy learners. A subclass keeps `_values` and gives `update`."""

    _values: Tensor  # [L * S, A]

    def __init__(self, config: Any, spec: EnvSpec, seeds: Tensor, device: torch.device) -> None:
        super().__init__(config, spec, seeds, device)
        self._rows_of = table_rows(len(seeds), spec.num_obs, device)

    def _rows(self, obs: Tensor) -> Tensor:
        """Rows of observations in the tables of values."""
        return self._rows_of(self._spec.plain(obs))

    @classmethod
    def check_spaces(cls, name: str, spec: EnvSpec) -> None:
        spaces = spec.plain_space, spec.action_space
        listed = all(isinstance(space, Discrete) for space in spaces)
        told = "Discrete observations and actions, not {} and {}; source=ppo_vectors takes vectors".format(*spaces)
        refuse(not listed, f"source.name={name} needs {told}")

    def action_probabilities(self, step: Step) -> Tensor:
        """epsilon / A + (1 - epsilon) / (number of best actions) for each best action, `[B, A]`, among the A legal."""
        values = self._spec.legal_of(self._values.detach()[self._rows(step.obs)], step.obs)
        best = (values == values.amax(-1, keepdim=True)).float()
        epsilon, legal = self.rate("epsilon"), self._spec.legal(step.obs)
        explored = epsilon / values.shape[-1] if legal is None else epsilon * legal / legal.sum(-1, keepdim=True)
        return explored + (1 - epsilon) * best / best.sum(-1, keepdim=True)

    def outputs(self) -> dict[str, Tensor]:
        return {"q_values": self._values.detach()}

    def _metrics(self, error: Tensor, row: Tensor) -> dict[str, Tensor]:
        """`[L]` each, from TD errors and rows of the observations, `[T, B]` each, before an update."""
        return {
            "td_error": self._per_learner(error.abs()),
            "value": self._per_learner(self._values.detach()[row].amax(-1)),
            "epsilon": torch.full((self.num_learners,), self.rate("epsilon"), device=error.device),
        }


@source("q_learning", QLearningConfig)
class QLearning(ActionValues):
    experience = Memory
    saved = ("table",)

    def __init__(self, config: QLearningConfig, spec: EnvSpec, seeds: Tensor, device: torch.device) -> None:
        super().__init__(config, spec, seeds, device)
        self.table = torch.zeros(len(seeds) * spec.num_obs, spec.num_actions, device=device)
        self.refresh()

    def refresh(self) -> None:
        self._values = self.table

    def update(self, sample: Sample) -> UpdateResult:
        """One update of every learner's table."""
        rollout, table, row = sample.rollout, self._values, self._rows(sample.rollout.obs)
        ahead = self._spec.legal_of(table[self._rows(rollout.next_obs)], rollout.next_obs).amax(-1)
        ahead = ahead.masked_fill(rollout.terminated, 0.0)
        cell = row * table.shape[1] + rollout.action
        error = rollout.reward + self._discount * ahead - table.view(-1)[cell]
        metrics = self._metrics(error, row)
        cells, which = cell.unique(return_inverse=True)
        # In float64 the sums of a cell's few float32 numbers of weight 1 are exact: their order does not matter.
        weight = sample.weight.double().expand_as(error)
        total, mass = torch.zeros(2, len(cells), dtype=torch.float64, device=table.device)
        total.index_add_(0, which.flatten(), (weight * error).flatten())
        mass.index_add_(0, which.flatten(), weight.flatten())
        tiny = torch.finfo(mass.dtype).tiny  # a cell whose targets all have weight 0 does not move
        table.view(-1)[cells] += (self.rate("learning_rate") * total / mass.clamp(min=tiny)).float()
        return UpdateResult(metrics, td_error=error.abs().mean(0))

    def parameters(self) -> Iterator[tuple[str, Tensor]]:
        yield "table", self._values.unflatten(0, (self.num_learners, -1))  # [L, S, A]


class DQNConfig(EpsilonGreedyConfig, NetworkConfig):
    name: Literal["dqn"] = named("dqn")
    target_update_rate: Annotated[Any, Rate(gt=0, le=1)] = option(0.05, "step of the target networks (1: a copy)")

    former = {"target_update_period": 1, "double": True}


@source("dqn", DQNConfig)
class DQN(ActionValues):
    """Loss of one learner over its W windows of T steps, averaged over the T * W samples:

        L = weight * (y - Q(s, a))^2,    y = r + discount * Q'(s', a'),    without the second term where the task ended

    with Q' the target network and a' = argmax Q(s', .), as in double DQN (van Hasselt et al., 2016, arXiv 1509.06461).
    `weight` belongs to the window: 1, or the importance weight of prioritised replay. Unlike in the
    paper the gradient is clipped, not the error. The losses of all learners are summed and gradients are clipped per
    learner, so learner k alone equals learner k among others.

    After each update Q' <- Q' + target_update_rate * (Q - Q'), parameter by parameter."""

    experience = Memory
    saved = ("network", "target_network", "optimizer", "updates")

    def __init__(self, config: DQNConfig, spec: EnvSpec, seeds: Tensor, device: torch.device) -> None:
        super().__init__(config, spec, seeds, device)
        network = StackedNetwork(len(seeds), spec.num_obs, spec.num_actions, config.hidden_size, seeds)
        nn.init.zeros_(network.heads)  # all values are 0, so that the first actions are uniform
        self.network = network.to(device)
        self.target_network = copy.deepcopy(self.network).requires_grad_(False)
        self.optimizer = StackedAdam(self.network, config.max_gradient_norm)
        self.updates = 0
        self.refresh()

    def update(self, sample: Sample) -> UpdateResult:
        """One gradient step of every learner."""
        rollout, row = sample.rollout, self._rows(sample.rollout.obs)
        next_row = self._rows(rollout.next_obs)
        chooser = self._values.detach()
        target_values = self._target_values[next_row]
        chooser_values = self._spec.legal_of(chooser[next_row], rollout.next_obs)
        reward, ended = rollout.reward, rollout.terminated
        value = look_up(self._values.flatten(), row * self._values.shape[1] + rollout.action)
        error = double_q_target(reward, ended, target_values, chooser_values, self._discount) - value
        metrics = self._metrics(error.detach(), row)
        loss = self._per_learner(sample.weight * error.square())
        norm = self.optimizer.descend(loss, self.rate("learning_rate"))
        self.updates += 1
        polyak_update(self.target_network, self.network, self.rate("target_update_rate"))
        with torch.no_grad():
            self._target_values = self.target_network().flatten(0, 1)
        self._values = self.network().flatten(0, 1)
        rate = torch.full_like(norm, self.rate("learning_rate"))
        metrics |= {"loss": loss.detach(), "gradient_norm": norm, "learning_rate": rate}
        return UpdateResult(metrics, td_error=error.detach().abs().mean(0))

    def refresh(self) -> None:
        """Tabulate both networks over all L * S rows. They are constant between updates, so one table serves acting and
        the loss of the next update, whose gradient flows through it."""
        self._values, self._target_values = (n().flatten(0, 1) for n in (self.network, self.target_network))
