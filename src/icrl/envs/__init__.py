"""Environments: the rules of each world as tensors, and both bridges to Gymnasium (`gym/`).

`make_env` makes any world from its options. Importing this package alone does not import PyTorch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from icrl.config.env_schema import EnvConfig
    from icrl.envs.core import TensorEnv

WORLDS = {  # by `env.name`: module and class
    "dark_room": "icrl.envs.dark_room:DarkRoom",
    "dark_key_to_door": "icrl.envs.dark_key_to_door:DarkKeyToDoor",
    "bandit": "icrl.envs.bandit:Bandit",
    "gymnasium": "icrl.envs.gym.gymnasium_env:GymnasiumEnv",
    "point_game": "icrl.point_game.world:PointFamily",
}


def make_env(config: EnvConfig, device: torch.device | str = "cpu") -> TensorEnv:
    """Environment that `config` describes, with its tables on `device`."""
    module, _, name = WORLDS[config.name].partition(":")
    return getattr(import_module(module), name)(config).to(device)
