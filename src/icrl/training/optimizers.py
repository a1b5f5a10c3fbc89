"""Optimizers by name, and their rates by schedule."""

from typing import Any

from torch import nn, optim

from icrl.config.schedules import Clock, make_schedule
from icrl.config.training_schema import AdamConfig, MTAdamConfig, OptimizerConfig, SGDConfig
from icrl.training.lamb import Lamb
from icrl.training.mtadam import MTAdam


def make_optimizer(model: nn.Module, config: OptimizerConfig) -> optim.Optimizer:
    """The optimizer `config.name` over all trainable parameters. Weight decay is decoupled and applies to the matrices
    of linear layers alone, not to embeddings, norms or biases."""
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
