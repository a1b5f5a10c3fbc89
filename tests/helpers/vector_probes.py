"""Tiny worlds of vectors and continuous actions whose values and best actions are known."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete, Space
from torch import Tensor

from icrl.envs.core import State
from icrl.extensions.vectors.world import VectorConfig, VectorEnv
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


# Reward 1 at each step until the clock ends the episode; the first number is the reward; a button for its sign; the
# distance of the action to half the first number, to a point beyond the bounds, and of an earlier action.
ENDLESS = VectorProbe(ARM, lambda x, a: (x, torch.ones(len(x)), always(x, False)), limit=3)
COUNTED = VectorProbe(ARM, counted)
SHOWN = VectorProbe(BUTTONS, lambda x, a: (x, x[:, 0], always(x, True)), varied=True)
SIGN = VectorProbe(BUTTONS, lambda x, a: (x, ((x[:, 0] > 0) == (a > 0)).float(), always(x, True)), varied=True)
NEAR = VectorProbe(ARM, lambda x, a: (x, -(a[:, 0] - x[:, 0] / 2).square(), always(x, True)), varied=True)
BEYOND = VectorProbe(ARM, lambda x, a: (x, -(a[:, 0] - 5).square(), always(x, True)))
REMEMBERED = VectorProbe(ARM, remembered)
