"""Deep Q-networks (Mnih et al., 2015), many learners as one batched program.

Loss of one learner over its W windows of T steps, averaged over the T * W samples:

    L = weight * (y - Q(s, a))^2,    y = r + discount * Q'(s', a'),    without the second term where the task ended

with Q' the target network and a' = argmax Q'(s', .), or argmax Q(s', .) in double DQN (van Hasselt et al., 2016,
arXiv 1509.06461). `weight` belongs to the window: 1, or the importance weight of prioritised replay (Schaul et al.,
2016, arXiv 1511.05952). Unlike in the paper the gradient is clipped, not the error. The losses of all learners are
summed and gradients are clipped per learner, so learner k alone equals learner k among others.

Every `target_update_period` updates Q' <- Q' + target_update_rate * (Q - Q'), parameter by parameter.
"""

import copy
from typing import Annotated, Any, Literal

import torch
from torch import Tensor, nn

from icrl.config.options import Rate, option
from icrl.contracts import EnvSpec, Learned, Sample
from icrl.nn.networks import StackedAdam, StackedNetwork, look_up
from icrl.rl.double_q import blend, double_q_target
from icrl.sources import source
from icrl.sources.options import NetworkConfig, ReplayConfig
from icrl.sources.q_learning import ActionValues

_NAME = "source algorithm; the preset `source=` sets all of this group"


class DQNConfig(ReplayConfig, NetworkConfig):
    name: Literal["dqn"] = option("dqn", _NAME)
    epsilon: Annotated[Any, Rate(ge=0, le=1)] = option(
        {"kind": "linear", "progress": "percent", "points": [[0, 1.0], [0.7, 0.0]]},
        "probability of a uniformly random action",
    )
    double: bool = option(True, "the network chooses the next action and the target network values it (double DQN)")
    target_update_period: int = option(1, "updates between two updates of the target network", ge=1)
    target_update_rate: Annotated[Any, Rate(gt=0, le=1)] = option(
        0.05, "step of the target network towards the network (1: a copy)"
    )


_MODULES = ("network", "target_network", "optimizer")  # in a checkpoint


@source("dqn", DQNConfig)
class DQN(ActionValues):
    def __init__(self, config: DQNConfig, spec: EnvSpec, seeds: Tensor, device: torch.device) -> None:
        """All values start at 0, so that the first actions are uniform."""
        super().__init__(config, spec, seeds, device)
        network = StackedNetwork(len(seeds), spec.num_obs, spec.num_actions, config.hidden_size, seeds)
        nn.init.zeros_(network.heads)
        self.network = network.to(device)
        self.target_network = copy.deepcopy(self.network).requires_grad_(False)
        self.optimizer = StackedAdam(self.network, config)
        self._double = config.double
        self._updates = 0
        self._tabulate()

    def update(self, sample: Sample) -> Learned:
        """One gradient step of every learner."""
        rollout, row = sample.rollout, self._rows.of(sample.rollout.obs)
        next_row = self._rows.of(rollout.next_obs)
        chooser = self._values.detach() if self._double else self._target_values
        target_values, chooser_values = self._target_values[next_row], chooser[next_row]
        reward, ended = self._reward_values[rollout.reward], rollout.terminated
        value = look_up(self._values.flatten(), row * self._values.shape[1] + rollout.action)
        error = double_q_target(reward, ended, target_values, chooser_values, self._discount) - value
        metrics = self._metrics(error.detach(), row)
        loss = self._per_learner(sample.weight * error.square())
        norm = self.optimizer.descend(loss, self.rate("learning_rate"))
        self._updates += 1
        if self._updates % self.config.target_update_period == 0:
            blend(self.target_network, self.network, self.rate("target_update_rate"))
            with torch.no_grad():
                self._target_values = self.target_network().flatten(0, 1)
        self._values = self.network().flatten(0, 1)
        rate = torch.full_like(norm, self.rate("learning_rate"))
        metrics |= {"loss": loss.detach(), "gradient_norm": norm, "learning_rate": rate}
        return Learned(metrics, td_error=error.detach().abs().mean(0))

    def state_dict(self) -> dict[str, Any]:
        modules = {name: getattr(self, name).state_dict() for name in _MODULES}
        return {**modules, "updates": self._updates, **super().state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        for name in _MODULES:
            getattr(self, name).load_state_dict(state[name])
        self._updates = state["updates"]
        self._tabulate()

    def _tabulate(self) -> None:
        """Tabulate both networks over all L * S rows. They are constant between updates, so one table serves acting and
        the loss of the next update, whose gradient flows through it."""
        self._values, self._target_values = (n().flatten(0, 1) for n in (self.network, self.target_network))
