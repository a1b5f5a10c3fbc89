"""Environments: rules as tensors, and the same rules behind Gymnasium's interfaces.

Importing this package registers `icrl/DarkRoom-v0` and `icrl/DarkRoomClassic-v0`, so that
`gymnasium.make("src.envs:icrl/DarkRoom-v0")` works in one line.
"""

import gymnasium
import torch

from src.envs.base import TensorEnv
from src.envs.dark_room import DarkRoom
from src.schema import EnvConfig

_ENVS = {"dark_room": DarkRoom}


def make_env(config: EnvConfig, device: torch.device | str = "cpu") -> TensorEnv:
    """The environment `config` describes, with its tables on `device`."""
    return _ENVS[config.name](config).to(device)


def _register(env_id: str, *, terminate_on_goal: bool) -> None:
    """The time limit is Gymnasium's part of the spec and no argument: `make` wraps the single environment, which has no
    clock of its own then, in `TimeLimit`, and `make_vec` hands it to the batched one, which counts itself. So exactly
    one clock runs, and `make(..., max_episode_steps=n)` means n, even where n is more than is registered."""
    gymnasium.register(
        env_id,
        entry_point="src.envs.gymnasium_face:SingleEnv",
        vector_entry_point="src.envs.gymnasium_face:BatchedEnv",
        max_episode_steps=20,
        kwargs={"size": 9, "random_start": False, "terminate_on_goal": terminate_on_goal},
    )


_register("icrl/DarkRoom-v0", terminate_on_goal=True)
_register("icrl/DarkRoomClassic-v0", terminate_on_goal=False)
