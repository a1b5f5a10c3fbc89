"""Bandit policies that know how long a life is: the Gittins index, and UCB1 with the best width; and the policies that
play beside a model in each bandit. B streams, C contexts, A arms.
"""

from typing import Any

import torch
from torch import Tensor

from icrl.evaluation.references import searchers_in
from icrl.extensions.worlds.bandit import DEVIATION, Bandit
from icrl.extensions.worlds.learners import (
    UCB1,
    BanditPolicy,
    LinearThompsonSampling,
    LinUCB,
    ThompsonSampling,
    in_context,
)
from icrl.spaces import EnvSpec


class TunedUCB1(BanditPolicy):
    """UCB1 for rewards 0 and 1 as RL^2's tables have it (Duan et al., 2016, arXiv 1611.02779, section 3.1): every arm
    begins with a success and a failure, and the width c = 0.2 is the best of a grid for lives of 100 and of 500 pulls:

        (1 + wins) / (2 + n) + c * sqrt(2 * ln(t) / (2 + n))

    before pull t, with n pulls of the arm."""

    def scores(self, count: Tensor, total: Tensor, context: Tensor, noise: Tensor) -> Tensor:
        count, total = in_context(count, context), in_context(total, context)
        time = 1 + count.sum(dim=1, keepdim=True)
        return (1 + total) / (2 + count) + 0.2 * (2 * time.log() / (2 + count)).sqrt()


class GittinsIndex(BanditPolicy):
    """Pulls the arm with the largest Gittins index (Gittins, 1979), for rewards 0 and 1 and the discount
    1 - 2 / H in a life of H > 1 pulls; see `gittins_indices`. For discounted sums it is the best policy there is."""

    def __init__(self, spec: EnvSpec, horizon: int) -> None:
        super().__init__(spec, None)
        self._indices = gittins_indices(horizon, max(0.0, 1 - 2 / horizon))

    def scores(self, count: Tensor, total: Tensor, context: Tensor, noise: Tensor) -> Tensor:
        count, total = in_context(count, context).long(), in_context(total, context).long()
        last = len(self._indices) - 1
        known = self._indices.to(count.device)[total.clamp(max=last), (count - total).clamp(max=last)]
        return torch.where(count <= last, known, (1 + total) / (2 + count))


def gittins_indices(most_pulls: int, discount: float, grid: int = 400) -> Tensor:
    """Gittins indices `[most_pulls + 1, most_pulls + 1]` of an arm with so many wins and losses, of which there are at
    most `most_pulls` in all, for a uniform prior (Gittins, Glazebrook and Weber, 2011, section 8.4).

    The index is the price L of a pull for which pulling on and stopping are worth the same: backward induction from
    arms whose mean is taken as known after `most_pulls` pulls gives, for each L of a grid,

        Q(w, l) = p - L + discount * (p * V(w + 1, l) + (1 - p) * V(w, l + 1)),    V = max(Q, 0)

    with p = (1 + w) / (2 + w + l), and the root of Q between two of them is taken as linear."""
    price = torch.linspace(0, 1, grid + 1, dtype=torch.float64)
    indices = torch.zeros(most_pulls + 1, most_pulls + 1)
    known = (1 + torch.arange(most_pulls + 2)) / (3 + most_pulls)
    value = (known[:, None] - price).clamp(min=0) / (1 - discount)  # [wins, price], after one pull more
    for pulls in range(most_pulls, -1, -1):
        wins = torch.arange(pulls + 1)
        mean = ((1 + wins) / (2 + pulls))[:, None].double()
        gain = mean - price + discount * (mean * value[1 : pulls + 2] + (1 - mean) * value[: pulls + 1])
        below = (gain > 0).sum(dim=1, keepdim=True)  # the first price that is too high; the price 0 never is
        left, right = gain.gather(1, below - 1), gain.gather(1, below.clamp(max=grid))
        indices[wins, pulls - wins] = ((below - 1 + left / (left - right)) / grid)[:, 0].float()
        value = gain.clamp(min=0)
    return indices


@searchers_in.register
def _(env: Bandit) -> dict[str, Any]:
    if env.features is not None:
        linear = (env.spec, DEVIATION, env.features)
        return {"Thompson sampling": LinearThompsonSampling(*linear), "LinUCB": LinUCB(*linear)}
    thompson = {"Thompson sampling": ThompsonSampling(env.spec, env.deviation, env.first_mean)}
    tuned = {"tuned UCB1": TunedUCB1(env.spec, None)} if env.deviation is None else {}
    if env.horizon:
        return thompson | tuned | {"Gittins index": GittinsIndex(env.spec, env.horizon)}
    return thompson | tuned | {"UCB1": UCB1(env.spec, DEVIATION)}  # as large as any of rewards in [0, 1]
