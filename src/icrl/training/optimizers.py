"""Optimizers by name, and their rates by schedule."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, Literal, Self

import torch
from pydantic import model_validator
from torch import Tensor, nn, optim
from torch.optim.optimizer import Optimizer, ParamsT

from icrl.config.options import Options, Rate, option, refuse
from icrl.config.schedules import Clock, make_schedule
from icrl.nn.networks import matrices_of
from icrl.nn.transformer import Induction, Transformer

_OPTIMIZER = "update rule; the preset `optimizer=` sets all of this group"
_COSINE: dict[str, Any] = {"kind": "cosine", "progress": "percent", "initial": 0.004, "final": 4e-05, "time": 1}
_RATE = _COSINE | {"warmup": {"until": 0.03, "start": 0}}
_NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
_NOTHING = 1e-10  # norm average at or below which a term counts as without gradient


class OptimizerConfig(Options):
    """Shared options of all optimizers."""

    name: str = option("", _OPTIMIZER)
    initialize: bool = option(
        False, "start with a new optimizer when continuing from critic.initial_model_prefix", stages="ilql"
    )
    learning_rate: Annotated[Any, Rate(ge=0)] = option(_RATE, "learning rate of all parameters")
    max_gradient_norm: Annotated[Any, Rate(gt=0)] = option(1.0, "gradient norm clip; with mtadam, of each loss term")

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name, value in self:
            why = "gradient updates make no env steps; progress must be percent, iterations or updates"
            counts_steps = isinstance(value, dict) and value.get("progress") == "env_steps"
            refuse(counts_steps, f"optimizer.{name}={value}: {why}")
        return self


class SGDConfig(OptimizerConfig):
    name: Literal["sgd"] = option("sgd", _OPTIMIZER)
    momentum: float = option(0.9, "decay of the sum of gradients", ge=0, le=0.9999)


class AdamConfig(OptimizerConfig):
    name: Literal["adam", "radam"] = option("adam", _OPTIMIZER)
    beta1: float = option(0.9, "decay of the mean of gradients", ge=0, le=0.9999)
    beta2: float = option(0.99, "decay of the mean of squares", ge=0, le=0.99999)
    epsilon: float = option(1e-8, "added to the root of the mean of squares", gt=0)


class AdamWConfig(AdamConfig):
    name: Literal["adamw", "lamb"] = option("adamw", _OPTIMIZER)  # type: ignore[assignment]
    weight_decay: Annotated[Any, Rate(ge=0)] = option(0.01, "decoupled weight decay of matrices")


class MuonConfig(AdamWConfig):
    name: Literal["muon"] = option("muon", _OPTIMIZER)  # type: ignore[assignment]
    momentum: float = option(0.95, "decay of the mean of gradients of the matrices that Muon updates", ge=0, le=0.9999)


class MTAdamConfig(AdamWConfig):
    name: Literal["mtadam"] = option("mtadam", _OPTIMIZER)  # type: ignore[assignment]
    beta3: float = option(0.9, "decay of the mean of each term's gradient norm", ge=0, le=0.9999)


class Lamb(Optimizer):
    """LAMB (You et al., 2020, "Large Batch Optimization for Deep Learning", arXiv 1904.00962): Adam with steps
    proportional to the norm of each matrix.

        m <- beta1 m + (1 - beta1) g             v <- beta2 v + (1 - beta2) g^2             t <- t + 1
        u = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay w
        w <- w - lr ratio u                      ratio = |w| / |u|, or 1 where either is 0

    The ratio applies to whole tensors in groups with `decays`, even at a weight decay of 0. In other groups (biases and
    norms) it is 1. Gradients are not clipped here."""

    def __init__(self, params: ParamsT, **defaults: Any) -> None:
        super().__init__(params, {"weight_decay": 0.0, "decays": True} | defaults)

    @torch.no_grad()
    def step(self) -> None:  # pyrefly: ignore[bad-override]  # takes no closure
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    mean, spread = _moments(self.state[parameter], parameter.grad, *group["betas"])
                    change = mean / (spread + group["eps"]) + group["weight_decay"] * parameter
                    norm, of_change = parameter.norm(), change.norm()
                    ratio = torch.where((norm > 0) & (of_change > 0), norm / of_change, 1.0)
                    parameter.sub_((group["lr"] * ratio if group["decays"] else group["lr"]) * change)


class Muon(optim.AdamW):
    """Muon (Jordan et al., 2024, "Muon: An optimizer for hidden layers in neural networks") for the parameters of
    groups with `splits`, AdamW for all others.

        m <- momentum m + (1 - momentum) g       u = momentum m + (1 - momentum) g
        w <- w - lr (0.2 sqrt(max(rows, columns)) orthogonal(u) + weight_decay w)

    A parameter is made of the matrices that `splits` cuts it into by rows; each is made orthogonal by itself, and those
    of one shape at once. Parameters of several models have an axis before the rows. The factor makes the root mean
    square of a step that of a typical step of AdamW (Liu et al., 2025, arXiv 2502.16982), so that all parameters take
    one learning rate."""

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-3,
        momentum: float = 0.95,
        betas: tuple[float, float] = (0.9, 0.99),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, fused=True)
        self.defaults |= {"momentum": momentum, "splits": ()}
        for group in self.param_groups:
            group.setdefault("splits", ())
            group["momentum"] = momentum

    def __setstate__(self, state: dict[str, Any]) -> None:
        Optimizer.__setstate__(self, state)  # AdamW's own expects its step count in the state of every parameter

    @torch.no_grad()
    def step(self) -> None:  # pyrefly: ignore[bad-override]  # takes no closure
        alike: dict[torch.Size, list[tuple[Tensor, Tensor, dict[str, Any]]]] = defaultdict(list)
        moved: list[tuple[Tensor, Tensor]] = []
        for group in self.param_groups:
            for parameter in group["params"] if group["splits"] else ():
                if (gradient := parameter.grad) is None:
                    continue
                mean = self.state[parameter].setdefault("mean", torch.zeros_like(parameter))
                ahead = gradient.lerp(mean.lerp_(gradient, 1 - group["momentum"]), group["momentum"])
                parts = zip(*(whole.split(group["splits"], dim=-2) for whole in (parameter, ahead)), strict=True)
                for part, direction in parts:
                    alike[part.shape].append((part, direction, group))
                moved.append((parameter, gradient))
                parameter.grad = None  # so that AdamW passes over it
        for shape, matrices in alike.items():
            each = torch.stack([ahead for _, ahead, _ in matrices])
            changes = 0.2 * max(shape[-2:]) ** 0.5 * orthogonal(each.view(-1, *shape[-2:])).view(each.shape)
            for (part, _, group), change in zip(matrices, changes, strict=True):
                part.mul_(1 - group["lr"] * group["weight_decay"]).sub_(change, alpha=group["lr"])
        super().step()
        for parameter, gradient in moved:
            parameter.grad = gradient


def orthogonal(matrices: Tensor, num_steps: int = 5) -> Tensor:
    """Matrices `[N, rows, columns]` with the same singular vectors and singular values of about 0.7 to 1.2, by
    Newton-Schulz steps X <- a X + b (X X^T) X + c (X X^T)^2 X. A matrix of zeros stays zero."""
    a, b, c = _NEWTON_SCHULZ
    is_tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if is_tall else matrices
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(num_steps):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if is_tall else x


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
        super().__init__(params, {"weight_decay": 0.0} | defaults)

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
            moments = [
                _moments(state[term], ranks[term] * scale * gradient, beta1, beta2)
                for scale, (term, gradient) in zip(torch.where(usable, anchor / norms, 1.0), there.items(), strict=True)
            ]
            largest = torch.stack([spread + group["eps"] for _, spread in moments]).amax(0)
            change = torch.stack([mean for mean, _ in moments]).sum(0) / largest
            parameter.mul_(1 - group["lr"] * group["weight_decay"]).sub_(group["lr"] * change)


def _moments(state: dict[str, Any], gradient: Tensor, beta1: float, beta2: float) -> tuple[Tensor, Tensor]:
    """Update Adam's averages in `state`; returns m / (1 - beta1^t) and sqrt(v / (1 - beta2^t))."""
    if "mean" not in state:
        state.update(step=0, mean=torch.zeros_like(gradient), square=torch.zeros_like(gradient))
    state["step"] += 1
    state["mean"].lerp_(gradient, 1 - beta1)
    state["square"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
    return state["mean"] / (1 - beta1 ** state["step"]), (state["square"] / (1 - beta2 ** state["step"])).sqrt()


_FORMS: dict[str, tuple[type[OptimizerConfig], Callable[..., Optimizer]]] = {
    "sgd": (SGDConfig, optim.SGD),
    "adam": (AdamConfig, partial(optim.Adam, fused=True)),
    "radam": (AdamConfig, optim.RAdam),
    "adamw": (AdamWConfig, partial(optim.AdamW, fused=True)),
    "lamb": (AdamWConfig, Lamb),
    "muon": (MuonConfig, Muon),
    "mtadam": (MTAdamConfig, MTAdam),
}
OPTIMIZERS = {name: options for name, (options, _) in _FORMS.items()}


def make_optimizer(model: nn.Module, config: OptimizerConfig) -> Optimizer:
    """Optimizer `config.name` over all trainable parameters. Weight decay is decoupled and applies only to the matrices
    of linear and recurrent layers, not to embeddings, norms or biases. Muon updates the matrices of blocks and of the
    induction layer, AdamW its other parameters."""
    matrices = matrices_of(model)
    hidden = [module for module in model.modules() if isinstance(module, Transformer | Induction)]
    by_muon = hidden if isinstance(config, MuonConfig) else ()
    splits = {key: rows for module in by_muon for key, rows in matrices_of(module).items()}
    alike: dict[tuple[bool, tuple[int, ...]], list[nn.Parameter]] = {(True, ()): [], (False, ()): []}
    for parameter in model.parameters():
        if parameter.requires_grad:
            kind = (id(parameter) in matrices, splits.get(id(parameter), ()))
            alike.setdefault(kind, []).append(parameter)
    groups = [
        {"params": params, "decays": decays} | ({"splits": split} if split else {})
        for (decays, split), params in alike.items()
    ]
    given = config.model_dump()
    options = {"momentum": given["momentum"]} if "momentum" in given else {}
    options |= {"eps": given["epsilon"]} if "epsilon" in given else {}
    if betas := tuple(given[name] for name in ("beta1", "beta2", "beta3") if name in given):
        options["betas"] = betas
    _, make = _FORMS[config.name]
    optimizer = make(groups, lr=0.0, **options)
    set_rates(optimizer, config, Clock(0, 0, 0, 0))
    return optimizer


def set_rates(optimizer: Optimizer, config: OptimizerConfig, clock: Clock) -> None:
    """Set the learning rate and weight decay that the schedules give at `clock`."""
    rate = make_schedule(config.learning_rate)(clock)
    decay = make_schedule(getattr(config, "weight_decay", 0.0))(clock)
    for group in optimizer.param_groups:
        group["lr"] = rate
        group["weight_decay"] = decay if group["decays"] else 0.0
