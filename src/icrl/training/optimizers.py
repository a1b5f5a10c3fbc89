"""Optimizers, and the rates they take from their schedules before each update."""

from typing import Any

from torch import nn, optim

from icrl.config.schedules import Clock, make_schedule
from icrl.config.training_schema import AdamConfig, MTAdamConfig, OptimizerConfig, SGDConfig
from icrl.training.lamb import Lamb
from icrl.training.mtadam import MTAdam


def make_optimizer(model: nn.Module, config: OptimizerConfig) -> optim.Optimizer:
    """The optimizer of this name, of all parameters that learn; weight decay, which is decoupled, falls on matrices of
    linear layers alone, not on embeddings, norms or biases."""
    matrices = {id(layer.weight) for layer in model.modules() if isinstance(layer, nn.Linear)}
    learning = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [parameter for parameter in learning if (id(parameter) in matrices) == decays], "decays": decays}
        for decays in (True, False)
    ]
    optimizer = _make(groups, config)
    set_rates(optimizer, config, Clock(0, 0, 0, 0))
    return optimizer


def _make(groups: list[dict[str, Any]], config: OptimizerConfig) -> optim.Optimizer:
    if isinstance(config, SGDConfig):
        return optim.SGD(groups, lr=0.0, momentum=config.momentum)
    assert isinstance(config, AdamConfig)
    betas, eps = (config.beta1, config.beta2), config.epsilon
    if isinstance(config, MTAdamConfig):
        return MTAdam(groups, lr=0.0, betas=(*betas, config.beta3), eps=eps)
    match config.name:
        case "adam":
            return optim.Adam(groups, lr=0.0, betas=betas, eps=eps, fused=True)
        case "adamw":
            return optim.AdamW(groups, lr=0.0, betas=betas, eps=eps, fused=True)
        case "radam":
            return optim.RAdam(groups, lr=0.0, betas=betas, eps=eps)
    return Lamb(groups, lr=0.0, betas=betas, eps=eps)


def set_rates(optimizer: optim.Optimizer, config: OptimizerConfig, clock: Clock) -> None:
    """Learning rate and weight decay as their schedules say at `clock`."""
    rate, decay = (
        make_schedule(option)(clock) for option in (config.learning_rate, getattr(config, "weight_decay", 0.0))
    )
    for group in optimizer.param_groups:
        group["lr"] = rate
        group["weight_decay"] = decay if group["decays"] else 0.0
