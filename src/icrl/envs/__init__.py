"""Environments: rules as tensors, and the same rules behind Gymnasium's interfaces.

Importing this package registers `icrl/DarkRoom-v0` and the others of `gym/ids.py` with Gymnasium.
"""

from importlib import import_module

import torch

from icrl.config.env_schema import EnvConfig
from icrl.envs.core import TensorEnv
from icrl.envs.gym.ids import register_all

WORLDS = {  # by `env.name`: module and class
    "dark_room": "icrl.envs.dark_room:DarkRoom",
    "dark_key_to_door": "icrl.envs.dark_key_to_door:DarkKeyToDoor",
    "bandit": "icrl.envs.bandit:Bandit",
    "gymnasium": "icrl.envs.gym.world:GymnasiumEnv",
    "point_game": "icrl.point_game.world:PointFamily",
}


def make_env(config: EnvConfig, device: torch.device | str = "cpu") -> TensorEnv:
    """Environment that `config` describes, with its tables on `device`."""
    module, _, name = WORLDS[config.name].partition(":")
    return getattr(import_module(module), name)(config).to(device)


register_all()
