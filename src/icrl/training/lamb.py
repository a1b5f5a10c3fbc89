"""LAMB (You et al., 2020, "Large Batch Optimization for Deep Learning", arXiv 1904.00962): Adam with steps proportional
to the norm of each matrix.

    m <- beta1 m + (1 - beta1) g             v <- beta2 v + (1 - beta2) g^2             t <- t + 1
    u = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay w
    w <- w - lr ratio u                      ratio = |w| / |u|, or 1 where either is 0
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, ParamsT


def adam_moments(state: dict[str, Any], gradient: Tensor, beta1: float, beta2: float) -> tuple[Tensor, Tensor]:
    """Update Adam's averages in `state`; returns m / (1 - beta1^t) and sqrt(v / (1 - beta2^t))."""
    if "mean" not in state:
        state.update(step=0, mean=torch.zeros_like(gradient), square=torch.zeros_like(gradient))
    state["step"] += 1
    state["mean"].lerp_(gradient, 1 - beta1)
    state["square"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
    return state["mean"] / (1 - beta1 ** state["step"]), (state["square"] / (1 - beta2 ** state["step"])).sqrt()


class Lamb(Optimizer):
    """LAMB optimizer. The ratio applies to whole tensors in groups with `decays`, even at a weight decay of 0. In other
    groups (biases and norms) it is 1. Gradients are not clipped here."""

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "decays": True})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """Update every parameter that has a gradient. Returns the result of `closure`, which is called first."""
        loss = torch.enable_grad()(closure)() if closure else None
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    mean, spread = adam_moments(self.state[parameter], parameter.grad, *group["betas"])
                    change = mean / (spread + group["eps"]) + group["weight_decay"] * parameter
                    norm, of_change = parameter.norm(), change.norm()
                    ratio = torch.where((norm > 0) & (of_change > 0), norm / of_change, 1.0)
                    parameter.sub_((group["lr"] * ratio if group["decays"] else group["lr"]) * change)
        return loss
