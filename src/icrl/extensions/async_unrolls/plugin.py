"""Registration of the worker."""

from icrl.collection.collect import ASYNC_WORKERS
from icrl.extensions.async_unrolls.worker import AsyncUnrollWorker

ASYNC_WORKERS.append(AsyncUnrollWorker)
