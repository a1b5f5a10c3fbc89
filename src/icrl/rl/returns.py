"""Returns and targets that values are fitted to, and advantages for an actor."""

import torch
from torch import Tensor


def n_step_returns(
    reward: Tensor, next_value: Tensor, terminated: Tensor, truncated: Tensor, discount: float
) -> Tensor:
    """Longest n-step returns that a rollout of T steps allows, `[T, B]` (Mnih et al., 2016, without GAE):

        R_t = r_t + discount * (0            if the task ended at t,
                                V(next_t)    if the clock ran out at t, or t is the last step,
                                R_{t+1}      else)

    All arguments are `[T, B]`; `next_value` = V of the observation that the action led to, before any reset.
    """
    ended, boundary = terminated | truncated, next_value.masked_fill(terminated, 0.0)
    returns = torch.empty_like(next_value)
    columns = (column.unbind() for column in (reward, ended, boundary, returns))
    later = next_value[-1]
    for now, end, value, out in reversed([*zip(*columns, strict=True)]):
        later = torch.add(now, torch.where(end, value, later), alpha=discount, out=out)
    return returns


def backward_sums(delta: Tensor, trace: Tensor) -> Tensor:
    """Sums x_t = delta_t + trace_t * x_{t+1} from the last step backwards, where x_T = delta_T; `[T, B]` each."""
    sums, later = torch.empty_like(delta), torch.zeros_like(delta[-1])
    for t in range(len(delta) - 1, -1, -1):
        later = torch.addcmul(delta[t], trace[t], later)
        sums[t] = later
    return sums
