"""Resolvers of the presets of Meta-World, see `icrl.app.resolvers`."""

from collections.abc import Callable
from typing import Any


def _each(name: str, number: int) -> list[dict[str, int]]:
    """Tasks with the numbers below `number`."""
    return [{name: value} for value in range(number)]


def _numbers(first: int, end: int) -> list[int]:
    return [*range(first, end)]


RESOLVERS: dict[str, Callable[..., Any]] = {"each": _each, "numbers": _numbers}
