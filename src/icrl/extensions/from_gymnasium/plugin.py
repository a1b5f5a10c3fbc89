"""The world of this extension."""

from icrl.extensions.from_gymnasium import gymnasium_env

__all__ = ["gymnasium_env"]
