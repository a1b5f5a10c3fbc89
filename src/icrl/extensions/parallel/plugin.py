"""Registration of the pool."""

from icrl.extensions.parallel.pool import ProcessPool
from icrl.runs.processes import POOLS

POOLS.append(ProcessPool())
