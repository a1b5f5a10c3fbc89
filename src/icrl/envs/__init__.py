"""Environments: the rules of each world as tensors, and worlds of Gymnasium (`gym/`). Imports no PyTorch.

A world of the user's own is a `TensorEnv` under the decorator `@core.world(name, options)`, in a file that `module=`
names.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from icrl.envs.core import EnvConfig, TensorEnv

WORLDS = {  # by `env.name`: module, class, and class of its options
    "dark_room": ("icrl.envs.rooms", "DarkRoom", "DarkRoomConfig"),
    "gymnasium": ("icrl.envs.gym.gymnasium_env", "GymnasiumEnv", "GymnasiumConfig"),
}

OWN: dict[str, Any] = {}  # classes under the decorator `world`, of extensions and of the user's own, by `env.name`


def make_env(config: EnvConfig, device: torch.device | str = "cpu") -> TensorEnv:
    """Environment that `config` describes, with its tables on `device`."""
    module, name, _ = WORLDS.get(config.name, ("", "", ""))
    made = getattr(import_module(module), name) if module else OWN[config.name]
    return made(config).to(device)


def env_options() -> dict[str, type[EnvConfig]]:
    """Class of the options of each world, by `env.name`."""
    import_module("icrl.config.modules").load_plugins()  # late, because it imports PyTorch
    return _built_in() | {name: made.options for name, made in OWN.items()}


@cache
def _built_in() -> dict[str, type[EnvConfig]]:
    return {world: getattr(import_module(module), options) for world, (module, _, options) in WORLDS.items()}
