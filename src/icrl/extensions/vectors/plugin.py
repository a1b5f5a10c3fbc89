"""The networks of this extension."""

from icrl.extensions.vectors import actions, encoders, heads

__all__ = ["actions", "encoders", "heads"]
