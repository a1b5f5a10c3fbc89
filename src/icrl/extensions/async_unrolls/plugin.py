"""Registration of the worker and of the source."""

from icrl.extensions.async_unrolls import a3c
from icrl.extensions.async_unrolls.worker import AsyncUnrollWorker
from icrl.sources.collect import ASYNC_WORKERS

__all__ = ["a3c"]

ASYNC_WORKERS.append(AsyncUnrollWorker)
