"""Optimizers by name, and their rates by schedule."""

from typing import Annotated, Any, Literal, Self

from pydantic import model_validator
from torch import nn, optim

from icrl.config.options import Options, Rate, option, refuse
from icrl.config.schedules import Clock, make_schedule
from icrl.training.lamb import Lamb
from icrl.training.mtadam import MTAdam

_OPTIMIZER = "update rule; the preset `optimizer=` sets all of this group"


class OptimizerConfig(Options):
    """Shared options of all optimizers."""

    name: str = option("", _OPTIMIZER)
    initialize: bool = option(
        False,
        "when continuing from critic.initial_model_prefix, start with a new optimizer instead of its saved state",
        stages="ilql",
    )
    learning_rate: Annotated[Any, Rate(ge=0)] = option(
        {
            "kind": "cosine",
            "progress": "percent",
            "initial": 0.004,
            "final": 4e-05,
            "time": 1,
            "warmup": {"until": 0.03, "start": 0},
        },
        "learning rate of all parameters",
    )
    max_gradient_norm: Annotated[Any, Rate(gt=0)] = option(
        1.0, "gradient norm clip; with mtadam, of each loss term separately"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name, value in self:
            refuse(
                isinstance(value, dict) and value.get("progress") == "env_steps",
                f"optimizer.{name}={value}: gradient updates make no env steps; progress must be "
                "percent, iterations or updates",
            )
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


class MTAdamConfig(AdamWConfig):
    name: Literal["mtadam"] = option("mtadam", _OPTIMIZER)  # type: ignore[assignment]
    beta3: float = option(0.9, "decay of the mean of each term's gradient norm", ge=0, le=0.9999)


OPTIMIZERS: dict[str, type[OptimizerConfig]] = {
    "sgd": SGDConfig,
    "adam": AdamConfig,
    "radam": AdamConfig,
    "adamw": AdamWConfig,
    "lamb": AdamWConfig,
    "mtadam": MTAdamConfig,
}


def make_optimizer(model: nn.Module, config: OptimizerConfig) -> optim.Optimizer:
    """Optimizer `config.name` over all trainable parameters. Weight decay is decoupled and applies only to the matrices
    of linear layers, not to embeddings, norms or biases."""
    matrices = {id(layer.weight) for layer in model.modules() if isinstance(layer, nn.Linear)}
    learning = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups: list[dict[str, Any]] = [
        {"params": [parameter for parameter in learning if (id(parameter) in matrices) == decays], "decays": decays}
        for decays in (True, False)
    ]
    optimizer = _by_name(config, groups)
    set_rates(optimizer, config, Clock(0, 0, 0, 0))
    return optimizer


def _by_name(config: OptimizerConfig, groups: list[dict[str, Any]]) -> optim.Optimizer:
    if isinstance(config, SGDConfig):
        return optim.SGD(groups, lr=0.0, momentum=config.momentum)
    assert isinstance(config, AdamConfig)
    adam: dict[str, Any] = {"lr": 0.0, "betas": (config.beta1, config.beta2), "eps": config.epsilon}
    if isinstance(config, MTAdamConfig):
        return MTAdam(groups, **adam | {"betas": (config.beta1, config.beta2, config.beta3)})
    match config.name:
        case "adam":
            return optim.Adam(groups, **adam, fused=True)
        case "radam":
            return optim.RAdam(groups, **adam)
        case "adamw":
            return optim.AdamW(groups, **adam, fused=True)
    return Lamb(groups, **adam)


def set_rates(optimizer: optim.Optimizer, config: OptimizerConfig, clock: Clock) -> None:
    """Set the learning rate and weight decay that the schedules give at `clock`."""
    rate = make_schedule(config.learning_rate)(clock)
    decay = make_schedule(getattr(config, "weight_decay", 0.0))(clock)
    for group in optimizer.param_groups:
        group["lr"] = rate
        group["weight_decay"] = decay if group["decays"] else 0.0
