"""LAMB (You et al., 2020, "Large Batch Optimization for Deep Learning", arXiv 1904.00962): Adam whose step on a matrix
is in proportion to the matrix.

    m <- beta1 m + (1 - beta1) g             v <- beta2 v + (1 - beta2) g^2             t <- t + 1
    u = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay w
    w <- w - lr ratio u                      ratio = |w| / |u|, or 1 where either is 0
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, ParamsT


class Lamb(Optimizer):
    """The ratio is of whole tensors, in groups with `decays`; elsewhere it is 1, as for biases and norms. The group
    says so, not the weight decay: without any, matrices keep their ratio. Gradients are taken as they are: clipping
    them is for who calls `step`."""

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
        """One update of every parameter that has a gradient. Returns what `closure` does, which is called before."""
        loss = torch.enable_grad()(closure)() if closure else None
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    change = self._change(parameter, group)
                    rate = group["lr"] * _trust_ratio(parameter, change) if group["decays"] else group["lr"]
                    parameter.sub_(rate * change)
        return loss

    def _change(self, parameter: Tensor, group: dict[str, Any]) -> Tensor:
        """u of the equation above, with the moments moved."""
        state, (beta1, beta2) = self.state[parameter], group["betas"]
        if not state:
            state.update(step=0, mean=torch.zeros_like(parameter), square=torch.zeros_like(parameter))
        state["step"] += 1
        state["mean"].lerp_(parameter.grad, 1 - beta1)
        state["square"].mul_(beta2).addcmul_(parameter.grad, parameter.grad, value=1 - beta2)
        mean = state["mean"] / (1 - beta1 ** state["step"])
        spread = (state["square"] / (1 - beta2 ** state["step"])).sqrt()
        return mean / (spread + group["eps"]) + group["weight_decay"] * parameter


def _trust_ratio(parameter: Tensor, change: Tensor) -> Tensor:
    of_parameter, of_change = parameter.norm(), change.norm()
    return torch.where((of_parameter > 0) & (of_change > 0), of_parameter / of_change, 1.0)
