"""Registration of the source."""

from icrl.extensions.ppo import ppo

__all__ = ["ppo"]
