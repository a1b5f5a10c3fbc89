"""Worlds with any options, and the moves of a room in plain Python."""

import importlib
from collections.abc import Callable
from typing import Any

from icrl import extensions
from icrl.envs.core import TensorEnv
from icrl.envs.rooms import DarkRoom, DarkRoomConfig

MOVES = ((0, 0), (-1, 0), (0, 1), (1, 0), (0, -1))


def room(**options: Any) -> DarkRoom:
    defaults = {"size": 9, "random_start": False, "terminate_on_goal": True, "permute_actions": False}
    return DarkRoom(
        DarkRoomConfig(**{"name": "dark_room", "variant": "x", "max_episode_steps": 20} | defaults | options)
    )


# One small world of every kind, each made anew: those of the core, and those of the extensions that are there.
WORLDS: dict[str, Callable[[], TensorEnv]] = {
    "terminating room": lambda: room(size=4, max_episode_steps=7),
    "classic room": lambda: room(size=3, terminate_on_goal=False, random_start=True, max_episode_steps=5),
    "permuted room": lambda: room(size=2, permute_actions=True, random_start=True, max_episode_steps=4),
}
if "worlds" in extensions.NAMES:
    WORLDS |= importlib.import_module("small_worlds").WORLDS


def scalar_move(size: int, cell: int, action: int) -> int:
    """Where `action` leads from `cell`: one step on a grid of (row, column), or none against a wall."""
    row, column = (position + step for position, step in zip(divmod(cell, size), MOVES[action], strict=True))
    return row * size + column if 0 <= row < size and 0 <= column < size else cell
