"""Registration of unions of shards as stores."""

from icrl.extensions.scaling import unions

__all__ = ["unions"]
