"""Targets of Q-learning, and target networks."""

from copy import deepcopy
from typing import Any, Self

import torch
from torch import Tensor, nn


def double_q_target(
    reward: Tensor, terminated: Tensor, target_values: Tensor, chooser_values: Tensor, discount: float
) -> Tensor:
    """Target of double Q-learning (van Hasselt et al., 2016, arXiv 1509.06461),
    y = r + discount * Q'(s', argmax_a Q(s', a)), without the second term where the task terminated.

    `reward` and `terminated` are `[...]`; `target_values` Q'(s', .) and `chooser_values` Q(s', .) are `[..., A]`. With
    Q' as the chooser it is the target of plain Q-learning."""
    best = chooser_values.argmax(-1, keepdim=True)
    return reward + discount * target_values.gather(-1, best).squeeze(-1).masked_fill(terminated, 0.0)


@torch.no_grad()
def polyak_update(target: nn.Module, network: nn.Module, rate: float) -> None:
    """target <- target + rate * (network - target) for all parameters and running means; counters are copied."""
    for slow, fast in zip(target.state_dict().values(), network.state_dict().values(), strict=True):
        slow.lerp_(fast, rate) if slow.is_floating_point() else slow.copy_(fast)


class WithTarget(nn.Module):
    """Networks `online`, and `target`, a slow copy of them in eval mode without gradient."""

    def __init__(self, online: nn.Module, rate: float) -> None:
        """`rate` is the step of the copy towards the networks after each update."""
        super().__init__()
        self.online, self.rate = online, rate
        self.target = deepcopy(online).requires_grad_(False).eval()

    def forward(self, *inputs: Any) -> Any:
        return self.online(*inputs)

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        self.target.eval()
        return self

    def after_update(self) -> None:
        """Move the copy after an optimizer step."""
        polyak_update(self.target, self.online, self.rate)
