"""Resolvers of the presets of this extension."""

from collections.abc import Callable
from typing import Any

from icrl.app.resolvers import numbers_of


def _short_life(episodes: Any, steps: Any) -> int:
    """Env steps that an evaluation uses, in whole unrolls of 10."""
    return -(-(episodes + 1) * steps // 10) * 10 if numbers_of(episodes, steps) else 10


RESOLVERS: dict[str, Callable[[Any, Any], object]] = {
    "short_life": _short_life,
    # Steps of a life in which all windows of this length begin in its first episode.
    "first_starts": lambda length, steps: length + steps - 1 if numbers_of(length, steps) else 0,
}
