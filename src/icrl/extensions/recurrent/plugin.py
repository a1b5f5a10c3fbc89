"""Registration of the layers."""

from icrl.extensions.recurrent import layers

__all__ = ["layers"]
