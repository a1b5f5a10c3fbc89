"""The writer of this extension."""

from icrl.extensions.curves import table

__all__ = ["table"]
