"""Tiny worlds of vectors and continuous actions whose values and best actions are known."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete, Space
from torch import Tensor, nn

from icrl.envs.core import State
from icrl.extensions.vectors.world import VectorConfig, VectorEnv
from icrl.nn.networks import ADAM_EPS
from icrl.spaces import EnvSpec

Rule = Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
ARM = Box(np.array([-1.0], np.float32), np.array([3.0], np.float32))  # 2 units wide on both sides of 1
BUTTONS = Discrete(2)


class VectorProbe(VectorEnv):
    """World of two numbers, both seen. The first is uniform within [-1, 1] at the start, or 0 unless `varied`, the
    second 0. `rule` gives the next numbers, the reward and whether the task ended."""

    def __init__(self, action_space: Space[Any], rule: Rule, *, varied: bool = False, limit: int = 5) -> None:
        super().__init__(VectorConfig(), torch.zeros(1, 1), (float(varied), 0.0))
        self.spec = EnvSpec(Box(-np.inf, np.inf, (2,)), action_space, (), 0, limit)
        self._rule = rule

    def move(self, state: State, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self._rule(state.inner, action)


def always(x: Tensor, ended: bool) -> Tensor:
    return torch.full((len(x),), ended)


def counted(x: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Reward 1 three times, then the end."""
    later = torch.stack([x[:, 0], x[:, 1] + 1], dim=1)
    return later, torch.ones(len(x)), later[:, 1] == 3


def remembered(x: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The first action is judged a step later, when nothing can be done about it."""
    first = x[:, 1] == 0
    paid = torch.where(first, 0.0, -(x[:, 0] - 2).square())
    return torch.stack([action[:, 0], torch.ones(len(x))], dim=1), paid, ~first


def walked(x: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Each step to a side costs 1."""
    return torch.stack([x[:, 0], x[:, 1] + 2.0 * action - 1], dim=1), -torch.ones(len(x)), always(x, False)


# Reward 1 at each step until the clock ends the episode; the first number is the reward; a button for its sign; the
# distance of the action to half the first number, to a point beyond the bounds, and of an earlier action.
ENDLESS = VectorProbe(ARM, lambda x, a: (x, torch.ones(len(x)), always(x, False)), limit=3)
COUNTED = VectorProbe(ARM, counted)
SHOWN = VectorProbe(BUTTONS, lambda x, a: (x, x[:, 0], always(x, True)), varied=True)
SIGN = VectorProbe(BUTTONS, lambda x, a: (x, ((x[:, 0] > 0) == (a > 0)).float(), always(x, True)), varied=True)
NEAR = VectorProbe(ARM, lambda x, a: (x, -(a[:, 0] - x[:, 0] / 2).square(), always(x, True)), varied=True)
BEYOND = VectorProbe(ARM, lambda x, a: (x, -(a[:, 0] - 5).square(), always(x, True)))
REMEMBERED = VectorProbe(ARM, remembered)
WALK = VectorProbe(BUTTONS, walked, limit=10)


class PlainLearner:
    """Learner `index` by itself, of those whose networks are `StackedMLP`: plain layers, PyTorch's Adam and clip, and
    moments of all it has seen. Numbers of an action in `ARM` are in units 2 wide, from 1."""

    def __init__(self, learners: Any, index: int, activation: type[nn.Module]) -> None:
        self.config, self.index, self._activation = learners.config, index, activation
        self.seen, self.returns = list[Tensor](), list[Tensor]()

    def copied(self, stacked: Any, *which: int) -> nn.Sequential:
        """Its perceptron in `stacked`, number `which` of several."""
        layers: list[nn.Module] = []
        for weight, bias in zip(stacked.weights, stacked.biases, strict=True):
            linear = nn.Linear(*weight.shape[-2:])
            linear.weight.data = weight[self.index, *which].detach().T.clone()
            linear.bias.data = bias[self.index, *which, 0].detach().clone()
            layers += [linear, self._activation()]
        return nn.Sequential(*layers[:-1])

    def trains(self, extra: nn.Parameter, *bodies: nn.Sequential) -> None:
        self._parameters = [extra, *(parameter for body in bodies for parameter in body.parameters())]
        self._optimizer = torch.optim.Adam(self._parameters, lr=self.config.learning_rate, eps=ADAM_EPS)

    def moments(self, seen: list[Tensor]) -> tuple[Any, Any]:
        """Mean and deviation."""
        both = torch.cat(seen) if seen else None
        return (0.0, 1.0) if both is None else (both.mean(0), (both.var(0, correction=0) + 1e-8).sqrt())

    def normalised(self, obs: Tensor) -> Tensor:
        mean, deviation = self.moments(self.seen)
        return (obs - mean) / deviation

    def descend(self, loss: Tensor) -> None:
        self._optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self._parameters, self.config.max_gradient_norm)
        self._optimizer.step()

    def assert_equal(self, body: nn.Sequential, stacked: Any, *which: int) -> None:
        for ours, theirs in zip(body.parameters(), self.copied(stacked, *which).parameters(), strict=True):
            torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)
