"""Environments: the rules of each world as tensors, and both bridges to Gymnasium (`gym/`). Imports no PyTorch."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from icrl.envs.core import EnvConfig, TensorEnv

WORLDS = {  # by `env.name`: module, class, and class of its options
    "dark_room": ("icrl.envs.rooms", "DarkRoom", "DarkRoomConfig"),
    "dark_key_to_door": ("icrl.envs.rooms", "DarkKeyToDoor", "KeyToDoorConfig"),
    "bandit": ("icrl.envs.bandit", "Bandit", "BanditConfig"),
    "point_robot": ("icrl.envs.point_robot", "PointRobot", "PointRobotConfig"),
    "cart_pole": ("icrl.envs.control", "CartPole", "CartPoleConfig"),
    "pendulum": ("icrl.envs.control", "Pendulum", "PendulumConfig"),
    "gymnasium": ("icrl.envs.gym.gymnasium_env", "GymnasiumEnv", "GymnasiumConfig"),
    "point_game": ("icrl.point_game.world", "PointFamily", "PointGameConfig"),
}


def make_env(config: EnvConfig, device: torch.device | str = "cpu") -> TensorEnv:
    """Environment that `config` describes, with its tables on `device`."""
    module, name, _ = WORLDS[config.name]
    return getattr(import_module(module), name)(config).to(device)


@cache
def env_options() -> dict[str, type[EnvConfig]]:
    """Class of the options of each world, by `env.name`."""
    return {world: getattr(import_module(module), options) for world, (module, _, options) in WORLDS.items()}
