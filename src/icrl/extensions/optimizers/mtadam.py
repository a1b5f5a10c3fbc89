"""MTAdam, and updates by the gradient of each term of the loss."""

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer, ParamsT

from icrl.config.options import option
from icrl.contracts import AnyBatch
from icrl.extensions.optimizers.lamb import moments
from icrl.training.optimizers import EPSILON, UPDATE_RULE, AdamWConfig
from icrl.training.updates import Updater

_NOTHING = 1e-10  # norm average at or below which a term counts as without gradient
Gradients = Sequence[Tensor | None]


class MTAdamConfig(AdamWConfig):
    takes_stacks: ClassVar[bool] = False
    is_shared: ClassVar[bool] = False

    name: Literal["mtadam"] = option("mtadam", UPDATE_RULE)  # type: ignore[assignment]

    former = {"beta3": 0.9}


class MTAdam(Optimizer):
    """MTAdam (Malkiel & Wolf, 2020, "MTAdam: Automatic Balancing of Multiple Training Loss Terms", arXiv 2006.14683):
    Adam on several loss terms, with their gradients scaled to one norm.

    For a tensor w, its gradients g_i of the terms i, and the rank r_i of a term, its share of the whole:

        n_i <- beta3 n_i + (1 - beta3) |g_i|,  at first |g_i|               a = the first i with n_i > 1e-10
        g_i <- r_i (n_a / n_i) g_i
        m_i <- beta1 m_i + (1 - beta1) g_i       v_i <- beta2 v_i + (1 - beta2) g_i^2       t_i <- t_i + 1
        u = sum over i of m_i / (1 - beta1^t_i)  /  max over i of (sqrt(v_i / (1 - beta2^t_i)) + eps)
        w <- w - lr (u + weight_decay w)

    With a single term this is Adam with decoupled weight decay. *Differences from the paper:* ranks; norm averages
    start at the first norm instead of 0; the anchor is the first term that reaches the tensor, not always the first
    one; weight decay. A term without a gradient keeps its averages and its t_i, and takes no part in the step."""

    def __init__(self, params: ParamsT, **defaults: Any) -> None:
        betas = (*defaults.pop("betas", (0.9, 0.999)), 0.9)[:3]
        super().__init__(params, {"weight_decay": 0.0, "betas": betas, "eps": EPSILON} | defaults)

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
            if not there:
                continue
            state, (beta1, beta2, beta3) = self.state[parameter], group["betas"]
            for term, gradient in there.items():
                norm = gradient.norm()
                state.setdefault(term, {"norm": norm.clone()})["norm"].lerp_(norm, 1 - beta3)
            norms = torch.stack([state[term]["norm"] for term in there])
            usable = norms > _NOTHING
            anchor = norms[usable.int().argmax().unsqueeze(0)]  # a tensor as index avoids a wait for the device
            averages = [
                moments(state[term], ranks[term] * scale * gradient, beta1, beta2)
                for scale, (term, gradient) in zip(torch.where(usable, anchor / norms, 1.0), there.items(), strict=True)
            ]
            largest = torch.stack([spread + group["eps"] for _, spread in averages]).amax(0)
            change = torch.stack([mean for mean, _ in averages]).sum(0) / largest
            parameter.mul_(1 - group["lr"] * group["weight_decay"]).sub_(group["lr"] * change)


def step_by_term(updater: Updater, parts: list[AnyBatch], max_norm: float) -> tuple[list[dict[str, Tensor]], Tensor]:
    """Step with the separately clipped gradients of all terms, which the optimizer combines. Returns each part's
    metrics and the norm of the weighted unclipped sum. The clipped sum is stored in `grad`."""
    optimizer = updater.optimizer
    assert isinstance(optimizer, MTAdam)
    found: list[dict[str, Tensor]] = []
    gradients: dict[str, Gradients] = {}
    size = sum(len(part[0]) for part in parts)
    for part in parts:
        _, terms, metrics = updater.loss(updater.forward, part)
        found.append(metrics)
        *_, last = terms
        for name, term in terms.items():
            new = torch.autograd.grad(
                term / (size / len(part[0])), optimizer.parameters, retain_graph=name != last, allow_unused=True
            )
            pairs = zip(gradients.get(name, [None] * len(new)), new, strict=True)
            gradients[name] = [one if two is None else two if one is None else one + two for one, two in pairs]
    ranks = [updater.objective.weights[name] for name in gradients]
    norm = _norm(_weighted(gradients.values(), ranks))
    clipped: list[Gradients] = []
    for of_term in gradients.values():
        scale = (max_norm / (_norm(of_term) + 1e-6)).clamp(max=1.0)  # as `clip_grad_norm_` does
        clipped.append([None if gradient is None else gradient * scale for gradient in of_term])
    for parameter, gradient in zip(optimizer.parameters, _weighted(clipped, ranks), strict=True):
        parameter.grad = gradient
    optimizer.step(clipped, ranks)
    if updater.after_step:
        updater.after_step()
    return found, norm


def _weighted(gradients: Iterable[Gradients], ranks: list[float]) -> Gradients:
    """Weighted sum of the gradients of all terms."""
    total: list[Tensor | None] = []
    for found in zip(*gradients, strict=True):
        there = [rank * gradient for rank, gradient in zip(ranks, found, strict=True) if gradient is not None]
        total.append(torch.stack(there).sum(0) if there else None)
    return total


def _norm(gradients: Gradients) -> Tensor:
    return nn.utils.get_total_norm([gradient for gradient in gradients if gradient is not None])
