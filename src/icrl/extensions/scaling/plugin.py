"""Registration of unions of shards as stores, and of ranks that train together."""

from icrl.extensions.scaling import unions
from icrl.extensions.scaling.ranks import Together
from icrl.runs.distributed import GROUPS

__all__ = ["unions"]
GROUPS.append(Together())
