"""Worlds of the extension `worlds` with any options, and a small one of every kind, each made anew."""

from collections.abc import Callable
from typing import Any

from icrl.envs.core import TensorEnv
from icrl.extensions.worlds.bandit import Bandit, BanditConfig
from icrl.extensions.worlds.key_to_door import DarkKeyToDoor, KeyToDoorConfig
from icrl.extensions.worlds.random_mdps import AnyMDP, AnyMDPConfig, Garnet, GarnetConfig


def key_to_door(**options: Any) -> DarkKeyToDoor:
    defaults = {"size": 9, "random_start": False, "show_key": True, "max_episode_steps": 50}
    return DarkKeyToDoor(KeyToDoorConfig(**{"name": "dark_key_to_door", "variant": "x"} | defaults | options))


def bandit(**options: Any) -> Bandit:
    defaults = {"num_arms": 10, "distribution": "bernoulli", "num_tasks": 1100}
    return Bandit(BanditConfig(**{"name": "bandit", "variant": "x", "max_episode_steps": 1} | defaults | options))


def garnet(**options: Any) -> Garnet:
    return Garnet(GarnetConfig(**{"name": "garnet", "variant": "x", "num_tasks": 20} | options))


def anymdp(**options: Any) -> AnyMDP:
    return AnyMDP(AnyMDPConfig(**{"name": "anymdp", "variant": "x", "num_tasks": 20} | options))


WORLDS: dict[str, Callable[[], TensorEnv]] = {
    "key to door": lambda: key_to_door(size=3, max_episode_steps=7),
    "hidden key": lambda: key_to_door(size=2, show_key=False, random_start=True, max_episode_steps=6),
    "bernoulli": lambda: bandit(num_arms=3, num_tasks=20),
    "gaussian": lambda: bandit(num_arms=3, num_tasks=20, distribution="gaussian", max_episode_steps=4),
    "contexts": lambda: bandit(num_arms=3, num_tasks=20, num_contexts=2),
    "linear": lambda: bandit(num_arms=3, num_tasks=20, distribution="gaussian", num_features=2),
    "garnet": lambda: garnet(num_states=5, num_actions=3, max_episode_steps=6),
    "anymdp": lambda: anymdp(num_states=5, num_actions=3, max_episode_steps=6),
}
