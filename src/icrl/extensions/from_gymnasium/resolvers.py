"""Resolvers of presets with environments of Gymnasium, see `icrl.app.resolvers`."""

import re
from collections.abc import Callable, Mapping, Sized
from typing import Any

from icrl.app.resolvers import numbers_of

_LAKE = ("", "FrozenLake-v1")  # ids of the preset env=gymnasium


def _world(env_id: Any) -> str:
    """Label of an environment."""
    return "gymnasium" if env_id in _LAKE else re.sub(r"\W+", "_", str(env_id).lower().split(":")[-1])


def _two_thirds(tasks: Any) -> int:
    """Training tasks among listed ones, or among those of a draw."""
    number = tasks.get("count") if isinstance(tasks, Mapping) else len(tasks) if isinstance(tasks, Sized) else 0
    return max(2, number * 2 // 3) if isinstance(number, int) and number else 0


def _lake_life(episodes: Any, steps: Any) -> int:
    """Env steps of one stream that an evaluation compares with, in whole unrolls of 10."""
    return -(-(episodes + 1) * steps // 10) * 10 if numbers_of(episodes, steps) else 10


RESOLVERS: dict[str, Callable[[Any], object] | Callable[[Any, Any], object] | Callable[[Any, Any, Any], object]] = {
    "world": _world,
    "lake": lambda env_id, there, elsewhere: there if env_id in _LAKE else elsewhere,
    "lake_life": _lake_life,
    "two_thirds": _two_thirds,
}
