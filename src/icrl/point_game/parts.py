"""What a player of the polyhedra game is trained with: its rules, its optimizer, its target network."""

from typing import Any

import torch
from torch import nn

from icrl.config.players_schema import PlayersConfig, RoleConfig
from icrl.config.training_schema import AdamConfig, OptimizerConfig, SGDConfig
from icrl.point_game.rollout import PointGame, PointGameOptions


def make_game(config: PlayersConfig) -> PointGame:
    game = config.game
    return PointGame(
        PointGameOptions(game.dimension, game.max_num_points, game.max_value, game.max_episode_steps, game.reposition)
    )


def optimizer_config(role: RoleConfig, max_gradient_norm: float) -> OptimizerConfig:
    shared: Any = {"learning_rate": role.learning_rate, "max_gradient_norm": max_gradient_norm}
    if role.optimizer == "sgd":
        return SGDConfig(momentum=role.momentum, **shared)
    return AdamConfig(beta1=role.adam_beta1, beta2=role.adam_beta2, epsilon=role.adam_eps, **shared)


@torch.no_grad()
def blend(target: nn.Module, network: nn.Module, rate: float) -> None:
    """target <- target + rate * (network - target) for all parameters and running means; counters are copied."""
    for slow, fast in zip(target.state_dict().values(), network.state_dict().values(), strict=True):
        slow.lerp_(fast, rate) if slow.is_floating_point() else slow.copy_(fast)
