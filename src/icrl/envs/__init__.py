"""Environments: the rules of each world as tensors. Imports no PyTorch.

To add a world, write a `TensorEnv` with the decorator `@core.world(name, options)`, in an extension or in a file that
`module=` names.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from icrl.envs.core import EnvConfig, TensorEnv

WORLDS: dict[str, Any] = {}  # classes under the decorator `world`, by `env.name`


def make_env(config: EnvConfig, device: torch.device | str = "cpu") -> TensorEnv:
    """Environment that `config` describes, with its tables on `device`."""
    return WORLDS[config.name](config).to(device)


def env_options() -> dict[str, type[EnvConfig]]:
    """Class of the options of each world, by `env.name`."""
    import_module("icrl.envs.rooms")  # late, because it imports PyTorch
    import_module("icrl.config.modules").load_plugins()
    return {name: made.options for name, made in WORLDS.items()}
