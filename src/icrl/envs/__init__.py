"""Environments: rules as tensors, and the same rules behind Gymnasium's interfaces.

Importing this package registers `icrl/DarkRoom-v0` and the others of `gymnasium_ids.py`, so that
`gymnasium.make("icrl.envs:icrl/DarkRoom-v0")` works in one line.
"""

from typing import Any

import torch

from icrl.config.env_schema import EnvConfig
from icrl.envs.bandit import Bandit
from icrl.envs.core import TensorEnv
from icrl.envs.dark_key_to_door import DarkKeyToDoor
from icrl.envs.dark_room import DarkRoom
from icrl.envs.gym.ids import register_all
from icrl.envs.gym.world import GymnasiumEnv
from icrl.point_game.world import PointFamily

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
