"""The sources of this extension."""

from icrl.extensions.value_sources import q_learning

__all__ = ["q_learning"]
