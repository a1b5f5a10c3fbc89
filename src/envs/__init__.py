"""Environments: rules as tensors, and the same rules behind Gymnasium's interfaces.

Importing this package registers `icrl/DarkRoom-v0` and the others of `gymnasium_ids.py`, so that
`gymnasium.make("src.envs:icrl/DarkRoom-v0")` works in one line.
"""

from typing import Any

import torch

from src.env_schema import EnvConfig
from src.envs.bandit import Bandit
from src.envs.base import TensorEnv
from src.envs.dark_key_to_door import DarkKeyToDoor
from src.envs.dark_room import DarkRoom
from src.envs.gymnasium_env import GymnasiumEnv
from src.envs.gymnasium_ids import register_all
from src.envs.point_family import PointFamily

_ENVS: dict[str, Any] = {
    "dark_room": DarkRoom,
    "dark_key_to_door": DarkKeyToDoor,
    "bandit": Bandit,
    "gymnasium": GymnasiumEnv,
    "point_game": PointFamily,
}


def make_env(config: EnvConfig, device: torch.device | str = "cpu") -> TensorEnv:
    """The environment `config` describes, with its tables on `device`."""
    return _ENVS[config.name](config).to(device)


register_all()
