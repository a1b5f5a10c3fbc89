"""The writers of this extension."""

from icrl.extensions.trackers import services

__all__ = ["services"]
