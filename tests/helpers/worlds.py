"""Worlds with any options, and the moves of a room in plain Python."""

from collections.abc import Callable
from typing import Any

from icrl.envs.bandit import Bandit, BanditConfig
from icrl.envs.core import TensorEnv
from icrl.envs.rooms import DarkKeyToDoor, DarkRoom, DarkRoomConfig, KeyToDoorConfig
from icrl.envs.tables import AnyMDP, AnyMDPConfig, Garnet, GarnetConfig

MOVES = ((0, 0), (-1, 0), (0, 1), (1, 0), (0, -1))


def room(**options: Any) -> DarkRoom:
    defaults = {"size": 9, "random_start": False, "terminate_on_goal": True, "permute_actions": False}
    return DarkRoom(
        DarkRoomConfig(**{"name": "dark_room", "variant": "x", "max_episode_steps": 20} | defaults | options)
    )


def key_to_door(**options: Any) -> DarkKeyToDoor:
    defaults = {"size": 9, "random_start": False, "show_key": True, "max_episode_steps": 50}
    return DarkKeyToDoor(KeyToDoorConfig(**{"name": "dark_key_to_door", "variant": "x"} | defaults | options))


def bandit(**options: Any) -> Bandit:
    defaults = {"num_arms": 10, "distribution": "bernoulli", "deviation": 0.5, "num_tasks": 1100, "tasks_seed": 0}
    return Bandit(BanditConfig(**{"name": "bandit", "variant": "x", "max_episode_steps": 1} | defaults | options))


def garnet(**options: Any) -> Garnet:
    return Garnet(GarnetConfig(**{"name": "garnet", "variant": "x", "num_tasks": 20} | options))


def anymdp(**options: Any) -> AnyMDP:
    return AnyMDP(AnyMDPConfig(**{"name": "anymdp", "variant": "x", "num_tasks": 20} | options))


# One small world of every kind, each made anew.
WORLDS: dict[str, Callable[[], TensorEnv]] = {
    "terminating room": lambda: room(size=4, max_episode_steps=7),
    "classic room": lambda: room(size=3, terminate_on_goal=False, random_start=True, max_episode_steps=5),
    "permuted room": lambda: room(size=2, permute_actions=True, random_start=True, max_episode_steps=4),
    "key to door": lambda: key_to_door(size=3, max_episode_steps=7),
    "hidden key": lambda: key_to_door(size=2, show_key=False, random_start=True, max_episode_steps=6),
    "bernoulli": lambda: bandit(num_arms=3, num_tasks=20),
    "gaussian": lambda: bandit(num_arms=3, num_tasks=20, distribution="gaussian", max_episode_steps=4),
    "contexts": lambda: bandit(num_arms=3, num_tasks=20, num_contexts=2),
    "linear": lambda: bandit(num_arms=3, num_tasks=20, distribution="gaussian", num_features=2),
    "garnet": lambda: garnet(num_states=5, num_actions=3, max_episode_steps=6),
    "anymdp": lambda: anymdp(num_states=5, num_actions=3, max_episode_steps=6),
}


def scalar_move(size: int, cell: int, action: int) -> int:
    """Where `action` leads from `cell`: one step on a grid of (row, column), or none against a wall."""
    row, column = (position + step for position, step in zip(divmod(cell, size), MOVES[action], strict=True))
    return row * size + column if 0 <= row < size and 0 <= column < size else cell
