"""MTAdam (Malkiel & Wolf, 2020, "MTAdam: Automatic Balancing of Multiple Training Loss Terms", arXiv 2006.14683): Adam
on several loss terms, with their gradients scaled to one norm.

For a tensor w, its gradients g_i of the terms i, and the rank r_i of a term, its share of the whole:

    n_i <- beta3 n_i + (1 - beta3) |g_i|,  at first |g_i|               a = the first i with n_i > 1e-10
    g_i <- r_i (n_a / n_i) g_i
    m_i <- beta1 m_i + (1 - beta1) g_i       v_i <- beta2 v_i + (1 - beta2) g_i^2       t_i <- t_i + 1
    u = sum over i of m_i / (1 - beta1^t_i)  /  max over i of (sqrt(v_i / (1 - beta2^t_i)) + eps)
    w <- w - lr (u + weight_decay w)

With a single term this is Adam with decoupled weight decay.

*Differences from the paper:* ranks; norm averages start at the first norm instead of 0; the anchor is the first term
that reaches the tensor, not always the first one; weight decay. A term without a gradient keeps its averages and its
t_i, and takes no part in the step.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, ParamsT

from icrl.training.lamb import adam_moments

_NOTHING = 1e-10  # norm average at or below which a term counts as without gradient


class MTAdam(Optimizer):
    """Optimizer with the equations above."""

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-3,
        betas: tuple[float, float, float] = (0.9, 0.999, 0.9),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @property
    def parameters(self) -> list[Tensor]:
        """Parameters of all groups, in the order of gradients in `step`."""
        return [parameter for group in self.param_groups for parameter in group["params"]]

    @torch.no_grad()
    def step(  # pyrefly: ignore[bad-override]  # the gradient of a sum is not enough for it
        self, gradients: Sequence[Sequence[Tensor | None]], ranks: Sequence[float]
    ) -> None:
        """Update from the `gradients` of every term, one per parameter: None if the term does not depend on it. The
        order of terms must not change between steps."""
        groups = [group for group in self.param_groups for _ in group["params"]]
        for parameter, group, *found in zip(self.parameters, groups, *gradients, strict=True):
            there = {term: gradient for term, gradient in enumerate(found) if gradient is not None}
            if there:
                state, (beta1, beta2, beta3) = self.state[parameter], group["betas"]
                scales = _balance(state, there, beta3)
                moments = [
                    adam_moments(state[term], ranks[term] * scale * gradient, beta1, beta2)
                    for scale, (term, gradient) in zip(scales, there.items(), strict=True)
                ]
                largest = torch.stack([spread + group["eps"] for _, spread in moments]).amax(0)
                change = torch.stack([mean for mean, _ in moments]).sum(0) / largest
                parameter.mul_(1 - group["lr"] * group["weight_decay"]).sub_(group["lr"] * change)


def _balance(state: dict[int, Any], gradients: dict[int, Tensor], beta3: float) -> Tensor:
    """Update the norm averages; returns n_a / n_i of each term in `gradients`."""
    for term, gradient in gradients.items():
        norm = gradient.norm()
        state.setdefault(term, {"norm": norm.clone()})["norm"].lerp_(norm, 1 - beta3)
    norms = torch.stack([state[term]["norm"] for term in gradients])
    usable = norms > _NOTHING
    anchor = norms[usable.int().argmax().unsqueeze(0)]  # a tensor as index avoids a wait for the device
    return torch.where(usable, anchor / norms, 1.0)
