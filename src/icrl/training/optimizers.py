"""Optimizers by name, and their rates by schedule."""

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

import torch
from pydantic import model_validator
from torch import Tensor, nn, optim
from torch.optim.optimizer import Optimizer, ParamsT

from icrl.config.modules import load_plugins
from icrl.config.options import Options, Rate, option, refuse
from icrl.config.schedules import Clock, make_schedule
from icrl.nn.gpt import INDUCTION
from icrl.nn.networks import matrices_of
from icrl.nn.transformer import Transformer

UPDATE_RULE = "update rule; the preset `optimizer=` sets all of this group"
_WARMUP = {"until": 0.03, "start": 0}
_RATE = {"kind": "cosine", "progress": "percent", "initial": 0.004, "final": 4e-05, "time": 1, "warmup": _WARMUP}
EPSILON = 1e-8  # added to the root of the mean of squared gradients


class OptimizerConfig(Options):
    """Shared options of all optimizers."""

    takes_stacks: ClassVar[bool] = True  # parameters of several models, with an axis of models, are updated as alone
    is_shared: ClassVar[bool] = True  # several processes can share the batches

    name: str = option("", UPDATE_RULE)
    learning_rate: Annotated[Any, Rate(ge=0)] = option(_RATE, "learning rate of all parameters")
    max_gradient_norm: Annotated[Any, Rate(gt=0)] = option(1.0, "norm at which the gradient is clipped")

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name, value in self:
            why = "gradient updates make no env steps; progress must be percent, iterations or updates"
            counts_steps = isinstance(value, dict) and value.get("progress") == "env_steps"
            refuse(counts_steps, f"optimizer.{name}={value}: {why}")
        return self


class AdamConfig(OptimizerConfig):
    name: Literal["adam"] = option("adam", UPDATE_RULE)
    beta2: float = option(0.99, "decay of the running mean of squared gradients", ge=0, le=0.99999)

    former = {"beta1": 0.9, "epsilon": EPSILON}


class AdamWConfig(AdamConfig):
    name: Literal["adamw"] = option("adamw", UPDATE_RULE)  # type: ignore[assignment]
    weight_decay: Annotated[Any, Rate(ge=0)] = option(0.01, "decoupled weight decay of matrices")


class MuonConfig(AdamWConfig):
    name: Literal["muon"] = option("muon", UPDATE_RULE)  # type: ignore[assignment]

    former = {"momentum": 0.95}


class Muon(optim.AdamW):
    """Muon (Jordan et al., 2024, "Muon: An optimizer for hidden layers in neural networks") for the parameters of
    groups with `splits`, AdamW for all others.

        m <- momentum m + (1 - momentum) g       u = momentum m + (1 - momentum) g
        w <- w - lr (0.2 sqrt(max(rows, columns)) orthogonal(u) + weight_decay w)

    A parameter is made of the matrices that `splits` cuts it into by rows; each is made orthogonal by itself, and those
    of one shape at once. Parameters of several models have an axis before the rows. With the factor, all parameters
    take one learning rate: a step has the size of a typical one of AdamW (Liu et al., 2025, arXiv 2502.16982)."""

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-3,
        momentum: float = 0.95,
        betas: tuple[float, float] = (0.9, 0.99),
        eps: float = EPSILON,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay, fused=True)
        self._step_supports_amp_scaling = False  # the fused AdamW has its own check for infinite gradients, Muon none
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


def orthogonal(matrices: Tensor) -> Tensor:
    """Matrices `[N, rows, columns]` with the same singular vectors and singular values of about 0.7 to 1.2, by five
    Newton-Schulz steps X <- a X + b (X X^T) X + c (X X^T)^2 X. A matrix of zeros stays zero."""
    a, b, c = 3.4445, -4.7750, 2.0315
    is_tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if is_tall else matrices
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(5):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if is_tall else x


class Rule(NamedTuple):
    """An update rule that `optimizer.name` chooses."""

    options: type[OptimizerConfig]
    make: Callable[..., Optimizer]
    step: Callable[..., Any] | None = None  # in place of that of `Updater.update`, for a rule that needs more gradients


_rules: dict[str, Rule] = {
    "adam": Rule(AdamConfig, partial(optim.Adam, fused=True)),
    "adamw": Rule(AdamWConfig, partial(optim.AdamW, fused=True)),
    "muon": Rule(MuonConfig, Muon),
}


def register(name: str, rule: Rule) -> None:
    """Let `optimizer.name=name` choose the `rule`, whose `make` takes groups of parameters with `decays`, `lr` and, if
    its options are of `AdamConfig`, `betas`. Raises `ConfigError` if another one has this name."""
    refuse(name in _rules, f"optimizer {name!r}: there is another optimizer of this name")
    _rules[name] = rule


def rules() -> dict[str, Rule]:
    """Update rule of each optimizer, by `optimizer.name`."""
    load_plugins()
    return _rules


def make_optimizer(model: nn.Module, config: OptimizerConfig) -> Optimizer:
    """Optimizer `config.name` over all trainable parameters. Weight decay is decoupled and applies only to the matrices
    of linear and recurrent layers, not to embeddings, norms or biases. Muon updates the matrices of blocks and of the
    induction layer, AdamW its other parameters."""
    matrices = matrices_of(model)
    hidden = [module for module in model.modules() if isinstance(module, (Transformer, *INDUCTION))]
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
    options = {"betas": (0.9, config.beta2)} if isinstance(config, AdamConfig) else {}
    optimizer = rules()[config.name].make(groups, lr=0.0, **options)
    set_rates(optimizer, config, Clock(0, 0, 0, 0))
    return optimizer


def set_rates(optimizer: Optimizer, config: OptimizerConfig, clock: Clock) -> None:
    """Set the learning rate and weight decay that the schedules give at `clock`."""
    rate = make_schedule(config.learning_rate)(clock)
    decay = make_schedule(getattr(config, "weight_decay", 0.0))(clock)
    for group in optimizer.param_groups:
        group["lr"] = rate
        group["weight_decay"] = decay if group["decays"] else 0.0
