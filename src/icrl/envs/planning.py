"""Optimal behaviour where the rules are a table. N tasks, S states, A actions, K outcomes, M steps an episode."""

import torch
from torch import Tensor

from icrl.envs.core import Outcomes

_SAME = 1e-9  # returns that differ by less are equal


def best_actions(rules: Outcomes, reward_values: Tensor, num_steps: int) -> Tensor:
    """The action `[N, M, S]` (int16) that maximises the return of the rest of an episode of `num_steps` = M; of those
    that do, one that ends it soonest.

    `rules` has a field `[N, S, A, K]` each. Backward induction (Puterman, 1994, section 4.5), twice in one sweep: with
    k steps left, V_k(s) = max_a sum_j p_j (r_j + (1 - terminated_j) V_{k-1}(s_j)), and among the actions that attain it
    the least expected length L_k(s) = min_a 1 + sum_j p_j (1 - terminated_j) L_{k-1}(s_j)."""
    goes_on = rules.probability.double() * ~rules.terminated
    reward = (rules.probability * reward_values[rules.reward]).sum(dim=-1)  # [N, S, A]
    after = rules.state_index.flatten(1)
    value = length = torch.zeros(rules.state_index.shape[:2], dtype=torch.float64)  # [N, S]
    best: list[Tensor] = []
    for _ in range(num_steps):
        returns = reward + (goes_on * value.gather(1, after).view_as(goes_on)).sum(dim=-1)
        lengths = 1 + (goes_on * length.gather(1, after).view_as(goes_on)).sum(dim=-1)
        value = returns.amax(dim=-1)
        length, action = lengths.masked_fill(returns < value[..., None] - _SAME, torch.inf).min(dim=-1)
        best.append(action.to(torch.int16))
    return torch.stack(best[::-1], dim=1)
