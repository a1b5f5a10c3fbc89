"""The kinds of this extension."""

from icrl.extensions.schedules import kinds

__all__ = ["kinds"]
