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


def v_trace(
    reward: Tensor,
    value: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    discount: float,
    ratio: Tensor,
) -> tuple[Tensor, Tensor]:
    """V-trace targets v of the values and advantages A of the actions, `[T, B]` each (Espeholt et al., 2018, arXiv
    1802.01561, section 4, remarks 1 and 2):

        rho_t = min(1, ratio_t)
        v_t   = V(s_t) + rho_t * (delta_t + discount * (v_{t+1} - V(s_{t+1})))
        A_t   = rho_t * (r_t + discount * v_{t+1} - V(s_t))

    with delta_t = r_t + discount * (0 if the task ended at t, else V(next_t)) - V(s_t). Where an episode ended at t, or
    t is the last step, v_{t+1} = V(s_{t+1}) = V(next_t), and 0 if the task ended at t. Arguments as in
    `n_step_returns`; `value` = V of the observation that the action was chosen on, `ratio` = pi(a|s) / mu(a|s), with mu
    the policy that played. If all ratios are 1, v is the n-step return.
    """
    ahead, on = discount * next_value.masked_fill(terminated, 0.0), discount * (terminated | truncated).logical_not()
    rho = ratio.clamp(max=1)
    excess = backward_sums(rho * (reward + ahead - value), on * rho)  # v - V
    later = torch.cat([excess[1:], torch.zeros_like(excess[:1])])
    return value + excess, rho * (reward + ahead + on * later - value)


def backward_sums(delta: Tensor, trace: Tensor) -> Tensor:
    """Sums x_t = delta_t + trace_t * x_{t+1} from the last step backwards, where x_T = delta_T; `[T, B]` each."""
    sums, later = torch.empty_like(delta), torch.zeros_like(delta[-1])
    for t in range(len(delta) - 1, -1, -1):
        later = torch.addcmul(delta[t], trace[t], later)
        sums[t] = later
    return sums
