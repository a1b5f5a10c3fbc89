"""Resolvers of the presets of this extension."""

from typing import Any

from icrl.app.resolvers import numbers_of


def _short_life(episodes: Any, steps: Any) -> int:
    """Env steps that an evaluation uses, in whole unrolls of 10."""
    return -(-(episodes + 1) * steps // 10) * 10 if numbers_of(episodes, steps) else 10


def _first_starts(length: Any, steps: Any) -> int:
    """Steps of a life in which all windows of this length begin in its first episode."""
    return length + steps - 1 if numbers_of(length, steps) else 0


RESOLVERS = {"short_life": _short_life, "first_starts": _first_starts}
