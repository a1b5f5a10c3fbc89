"""Resolvers of the presets of this extension."""

from collections.abc import Callable
from typing import Any

from omegaconf import ListConfig

# The world of a mixture is that of each of its stores.
RESOLVERS: dict[str, Callable[[Any], object]] = {
    "first_of": lambda names: names[0] if isinstance(names, ListConfig) and names else names
}
