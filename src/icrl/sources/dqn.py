"""Deep Q-networks (Mnih et al., 2015), many learners as one batched program.

Loss of one learner over its W windows of T steps, averaged over the T * W samples:

    L = weight * (y - Q(s, a))^2,    y = r + discount * Q'(s', a'),    without the second term where the task ended

with Q' the target network and a' = argmax Q'(s', .), or argmax Q(s', .) in double DQN (van Hasselt et al., 2016,
arXiv 1509.06461). `weight` is that of the window: 1, or what corrects prioritised replay (Schaul et al., 2016, arXiv
1511.05952). The error is squared and not clipped as in the paper, since the gradient is. The losses of all learners are
summed, gradients are clipped for each learner by itself, so learner k alone equals learner k among others.

Every `target_update_period` updates Q' <- Q' + target_update_rate * (Q - Q'), parameter by parameter.

T steps, L learners, W windows per learner, B streams or windows (learner by learner), S observations, A actions.
"""

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from icrl.config.schedules import Clock, make_schedule
from icrl.config.training_schema import DQNConfig
from icrl.contracts import EnvSpec, Learned, Sample
from icrl.nn.stacked import StackedAdam, StackedNetwork, look_up
from icrl.rl.double_q import blend, double_q_target
from icrl.sources.action_values import ActionValues


class DQN(ActionValues):
    def __init__(self, config: DQNConfig, spec: EnvSpec, seeds: Tensor, device: torch.device) -> None:
        """`seeds` `[L]` int64: one for each learner. All values start at 0, so that first actions are uniform."""
        super().__init__(config, spec, len(seeds), device)
        network = StackedNetwork(len(seeds), spec.num_obs, spec.num_actions, config.hidden_size, seeds)
        nn.init.zeros_(network.heads)
        self.network = network.to(device)
        self.target_network = copy.deepcopy(self.network).requires_grad_(False)
        self.optimizer = StackedAdam(self.network, config)
        self._double = config.double
        self._target_update_period = config.target_update_period
        self._target_update_rate = make_schedule(config.target_update_rate)
        self._updates = 0
        self._tabulate()
        self._tabulate_target()

    def update(self, sample: Sample) -> Learned:
        """One gradient step of every learner on its windows `[T, B]`; metrics are `[L]`."""
        rollout, row = sample.rollout, self._rows.of(sample.rollout.obs)
        next_row = self._rows.of(rollout.next_obs)
        chooser = self._values.detach() if self._double else self._target_values
        target_values, chooser_values = self._target_values[next_row], chooser[next_row]
        reward, ended = self._reward_values[rollout.reward], rollout.terminated
        value = look_up(self._values.flatten(), row * self._values.shape[1] + rollout.action)
        error = double_q_target(reward, ended, target_values, chooser_values, self._discount) - value
        metrics = self._metrics(error.detach(), row)
        loss = self._per_learner(sample.weight * error.square())
        norm = self.optimizer.descend(loss, self._learning_rate(self.clock))
        self._updates += 1
        if self._updates % self._target_update_period == 0:
            self._update_target()
        self._tabulate()
        rate = torch.full_like(norm, self._learning_rate(self.clock))
        metrics |= {"loss": loss.detach(), "gradient_norm": norm, "learning_rate": rate}
        return Learned(metrics, td_error=error.detach().abs().mean(0))

    def parameters(self) -> Iterator[tuple[str, Tensor]]:
        """Names and parameters, `[L, ...]` each."""
        return self.network.named_parameters()

    def state_dict(self) -> dict[str, Any]:
        """The clock too, so that restored learners act as the saved ones."""
        return {
            "network": self.network.state_dict(),
            "target_network": self.target_network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "updates": self._updates,
            "clock": list(self.clock),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.network.load_state_dict(state["network"])
        self.target_network.load_state_dict(state["target_network"])
        self.optimizer.load_state_dict(state["optimizer"])
        self._updates = state["updates"]
        self.clock = Clock(*state["clock"])
        self._tabulate()
        self._tabulate_target()

    def _tabulate(self) -> None:
        """Values are constant between updates: tabulate them over all L * S rows, once for acting and for the next
        update's loss, whose gradient flows through this table."""
        self._values = self.network().flatten(0, 1)

    def _tabulate_target(self) -> None:
        self._target_values = self.target_network().flatten(0, 1)

    @torch.no_grad()
    def _update_target(self) -> None:
        blend(self.target_network, self.network, self._target_update_rate(self.clock))
        self._tabulate_target()
