"""The world and the source of imported histories."""

from icrl.extensions.formats import imported

__all__ = ["imported"]
