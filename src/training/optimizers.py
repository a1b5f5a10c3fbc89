"""Optimizers and their learning rates, which are functions of the update."""

import math

import torch
from torch import nn

from src.training_schema import OptimizerConfig


def make_optimizer(model: nn.Module, config: OptimizerConfig) -> torch.optim.Optimizer:
    """Adam or AdamW; decoupled weight decay falls on matrices of linear layers alone, not on embeddings, norms or
    biases."""
    decayed = [layer.weight for layer in model.modules() if isinstance(layer, nn.Linear)]
    others = [p for p in model.parameters() if all(p is not matrix for matrix in decayed)]
    groups = [{"params": decayed, "weight_decay": config.weight_decay}, {"params": others, "weight_decay": 0.0}]
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[config.name]
    return kind(groups, lr=config.learning_rate, betas=(config.beta1, config.beta2), eps=config.eps, fused=True)


def learning_rate(config: OptimizerConfig, update: int, num_updates: int) -> float:
    """Linear warm-up from 0, then a cosine from `learning_rate` to `final_learning_rate`, where it stays."""
    if update < config.warmup_updates:
        return config.learning_rate * (update + 1) / config.warmup_updates
    length = (config.schedule_updates or num_updates) - config.warmup_updates
    progress = min((update - config.warmup_updates) / max(length, 1), 1.0)
    span = config.learning_rate - config.final_learning_rate
    return config.final_learning_rate + span * (1 + math.cos(math.pi * progress)) / 2
