"""Registration of the source."""

from icrl.extensions.sac import sac

__all__ = ["sac"]
