"""Advantages and returns written out step by step."""

import numpy as np
import torch
from torch import Tensor


def advantages_and_returns(
    reward: Tensor,
    value: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    discount: float,
    gae_lambda: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Advantages, sums of (discount * gae_lambda)^k * delta_{t+k}, and returns, sums of discounted rewards with the
    value at the end: from each step t to the end of its episode or of the rollout. All are `[T, B]`."""
    advantages, returns = torch.empty_like(value), torch.empty_like(value)
    for start, stream in np.ndindex(*value.shape):
        advantage, rewards, ahead, weight, trace = 0.0, 0.0, 0.0, 1.0, 1.0
        for t in range(start, len(value)):
            now = (t, stream)
            ahead = 0.0 if terminated[now] else next_value[now].item()
            advantage += trace * (reward[now].item() + discount * ahead - value[now].item())
            rewards += weight * reward[now].item()
            trace, weight = trace * discount * gae_lambda, weight * discount
            if terminated[now] or truncated[now]:
                break
        advantages[start, stream], returns[start, stream] = advantage, rewards + weight * ahead
    return advantages, returns
