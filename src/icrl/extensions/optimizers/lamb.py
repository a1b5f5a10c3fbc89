"""LAMB."""

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, ParamsT

from icrl.config.options import option
from icrl.training.optimizers import UPDATE_RULE, AdamWConfig

EPSILON = 1e-6


class LambConfig(AdamWConfig):
    takes_stacks: ClassVar[bool] = False

    name: Literal["lamb"] = option("lamb", UPDATE_RULE)  # type: ignore[assignment]

    former = {"epsilon": EPSILON}


class Lamb(Optimizer):
    """LAMB (You et al., 2020, "Large Batch Optimization for Deep Learning", arXiv 1904.00962): Adam with steps
    proportional to the norm of each matrix.

        m <- beta1 m + (1 - beta1) g             v <- beta2 v + (1 - beta2) g^2             t <- t + 1
        u = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay w
        w <- w - lr ratio u                      ratio = |w| / |u|, or 1 where either is 0

    The ratio applies to whole tensors in groups with `decays`, even at a weight decay of 0. In other groups (biases and
    norms) it is 1. Gradients are not clipped here."""

    def __init__(self, params: ParamsT, **defaults: Any) -> None:
        super().__init__(params, {"weight_decay": 0.0, "decays": True, "eps": EPSILON} | defaults)

    @torch.no_grad()
    def step(self) -> None:  # pyrefly: ignore[bad-override]  # takes no closure
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    mean, spread = moments(self.state[parameter], parameter.grad, *group["betas"])
                    change = mean / (spread + group["eps"]) + group["weight_decay"] * parameter
                    norm, of_change = parameter.norm(), change.norm()
                    ratio = torch.where((norm > 0) & (of_change > 0), norm / of_change, 1.0)
                    parameter.sub_((group["lr"] * ratio if group["decays"] else group["lr"]) * change)


def moments(state: dict[str, Any], gradient: Tensor, beta1: float, beta2: float) -> tuple[Tensor, Tensor]:
    """Update Adam's averages in `state`; returns m / (1 - beta1^t) and sqrt(v / (1 - beta2^t))."""
    if "mean" not in state:
        state.update(step=0, mean=torch.zeros_like(gradient), square=torch.zeros_like(gradient))
    state["step"] += 1
    state["mean"].lerp_(gradient, 1 - beta1)
    state["square"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
    return state["mean"] / (1 - beta1 ** state["step"]), (state["square"] / (1 - beta2 ** state["step"])).sqrt()
