"""MTAdam (Malkiel & Wolf, 2020, "MTAdam: Automatic Balancing of Multiple Training Loss Terms", arXiv 2006.14683): Adam
on several terms of a loss, whose gradients it brings to one norm.

For a tensor w, its gradients g_i of the terms i, and r_i the rank of a term, the share of the whole that it is given:

    n_i <- beta3 n_i + (1 - beta3) |g_i|,  at first |g_i|               a = the first i with n_i > 1e-10
    g_i <- r_i (n_a / n_i) g_i
    m_i <- beta1 m_i + (1 - beta1) g_i       v_i <- beta2 v_i + (1 - beta2) g_i^2       t_i <- t_i + 1
    u = sum over i of m_i / (1 - beta1^t_i)  /  max over i of (sqrt(v_i / (1 - beta2^t_i)) + eps)
    w <- w - lr (u + weight_decay w)

With a single term this is Adam with decoupled weight decay.

*Differences from the paper:* ranks; norm averages start at the first norm instead of 0; the anchor is the first term
that reaches the tensor, not always the first one; weight decay. A term without a gradient leaves its averages and its
t_i as they are and has no part in the step.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, ParamsT

_NOTHING = 1e-10  # a norm average up to which a term is taken to have no gradient


class MTAdam(Optimizer):
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
        """Those of all groups, in the order that gradients are given in."""
        return [parameter for group in self.param_groups for parameter in group["params"]]

    @torch.no_grad()
    def step(  # pyrefly: ignore[bad-override]  # the gradient of a sum is not enough for it
        self, gradients: Sequence[Sequence[Tensor | None]], ranks: Sequence[float]
    ) -> None:
        """One update from the `gradients` of every term, each as many as `parameters`: None where a term does not
        reach one. The terms keep their order from step to step."""
        groups = [group for group in self.param_groups for _ in group["params"]]
        for parameter, group, *found in zip(self.parameters, groups, *gradients, strict=True):
            there = {term: gradient for term, gradient in enumerate(found) if gradient is not None}
            if there:
                state = self.state[parameter]
                scales = _balance(state, there, group["betas"][2])
                balanced = {term: ranks[term] * scales[i] * there[term] for i, term in enumerate(there)}
                change = _change(state, balanced, group)
                parameter.mul_(1 - group["lr"] * group["weight_decay"]).sub_(group["lr"] * change)


def _balance(state: dict[int, Any], gradients: dict[int, Tensor], beta3: float) -> Tensor:
    """n_a / n_i of the terms there are, with the norm averages moved."""
    for term, gradient in gradients.items():
        norm = gradient.norm()
        if term not in state:
            zeros = torch.zeros_like(gradient)
            state[term] = {"step": 0, "norm": norm.clone(), "mean": zeros, "square": zeros.clone()}
        state[term]["norm"].lerp_(norm, 1 - beta3)
    norms = torch.stack([state[term]["norm"] for term in gradients])
    usable = norms > _NOTHING
    anchor = norms[usable.int().argmax().unsqueeze(0)]  # a tensor as index: nothing waits for the device
    return torch.where(usable, anchor / norms, 1.0)


def _change(state: dict[int, Any], gradients: dict[int, Tensor], group: dict[str, Any]) -> Tensor:
    """u of the equation above, with the moments moved."""
    beta1, beta2, _ = group["betas"]
    means: list[Tensor] = []
    spreads: list[Tensor] = []
    for term, gradient in gradients.items():
        own = state[term]
        own["step"] += 1
        own["mean"].lerp_(gradient, 1 - beta1)
        own["square"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        means.append(own["mean"] / (1 - beta1 ** own["step"]))
        spreads.append((own["square"] / (1 - beta2 ** own["step"])).sqrt() + group["eps"])
    return torch.stack(means).sum(0) / torch.stack(spreads).amax(0)
