"""Returns: what a critic is fitted to."""

import torch
from torch import Tensor


def n_step_returns(
    reward: Tensor, next_value: Tensor, terminated: Tensor, truncated: Tensor, discount: float
) -> Tensor:
    """The longest n-step return that a rollout of T steps allows, `[T, B]` (Mnih et al., 2016, without GAE):

        R_t = r_t + discount * (0            if the task ended at t,
                                V(next_t)    if the clock ran out at t, or t is the last step,
                                R_{t+1}      else)

    `reward`, `next_value` = V of the observation the action led to, before any reset, `terminated` and `truncated`
    are `[T, B]`.
    """
    returns = torch.empty_like(next_value)
    later = next_value[-1]
    for t in range(len(reward) - 1, -1, -1):
        ahead = torch.where(truncated[t], next_value[t], later).masked_fill(terminated[t], 0.0)
        later = torch.add(reward[t], ahead, alpha=discount)
        returns[t] = later
    return returns
