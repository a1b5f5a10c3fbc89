"""Optimizers, and the rates they take from their schedules before each update."""

import torch
from torch import nn

from src.schedules import Clock, make_schedule
from src.training_schema import OptimizerConfig


def make_optimizer(model: nn.Module, config: OptimizerConfig) -> torch.optim.Optimizer:
    """Adam or AdamW; decoupled weight decay falls on matrices of linear layers alone, not on embeddings, norms or
    biases."""
    decayed = [layer.weight for layer in model.modules() if isinstance(layer, nn.Linear)]
    others = [p for p in model.parameters() if all(p is not matrix for matrix in decayed)]
    groups = [{"params": decayed, "decays": True}, {"params": others, "decays": False}]
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[config.name]
    optimizer = kind(groups, lr=0.0, betas=(config.beta1, config.beta2), eps=config.eps, fused=True)
    set_rates(optimizer, config, Clock(0, 0, 0, 0))
    return optimizer


def set_rates(optimizer: torch.optim.Optimizer, config: OptimizerConfig, clock: Clock) -> None:
    """Learning rate and weight decay as their schedules say at `clock`."""
    rate, decay = (make_schedule(option)(clock) for option in (config.learning_rate, config.weight_decay))
    for group in optimizer.param_groups:
        group["lr"] = rate
        group["weight_decay"] = decay if group["decays"] else 0.0
