"""The world and the source of imported histories."""

from icrl.extensions.formats import imported, recorded

__all__ = ["imported", "recorded"]
