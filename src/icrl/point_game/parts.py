"""Rules and optimizer options of the polyhedra game from its configuration."""

from typing import Any

from icrl.point_game.options import PlayersConfig, RoleConfig
from icrl.point_game.rollout import PointGame, PointGameOptions
from icrl.training.optimizers import AdamConfig, OptimizerConfig, SGDConfig


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
