"""The sources of this extension."""

from icrl.extensions.value_sources import q_learning, sac

__all__ = ["q_learning", "sac"]
