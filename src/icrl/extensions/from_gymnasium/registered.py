"""Environments by the id that `env.id` gives: registered ones, and classes of the user's own."""

import gymnasium
from gymnasium.envs.registration import EnvSpec

from icrl.config.modules import load_module
from icrl.contracts import ConfigError


def registered(env_id: str) -> EnvSpec:
    """Gymnasium's description of `env_id`, which `gymnasium.make` takes: `Name-v0`, `module:Name-v0`, which imports the
    module first, or `module:Class`. A module is a dotted name or a Python file. Raises `ConfigError` if the module
    cannot be imported or has no such class, and Gymnasium's error if no such environment is registered."""
    module, _, name = env_id.rpartition(":")
    module_of_id = load_module(module, f"env.id={env_id}") if module else None
    if module_of_id and isinstance(getattr(module_of_id, name, None), type):
        return EnvSpec(f"{name}-v0", entry_point=f"{module_of_id.__name__}:{name}")
    try:
        return gymnasium.spec(name)
    except gymnasium.error.Error as error:
        if not module_of_id:
            raise
        lacks = f"{module} has no class {name}, and registers no environment of this name"
        raise ConfigError(f"env.id={env_id}: {lacks}") from error
