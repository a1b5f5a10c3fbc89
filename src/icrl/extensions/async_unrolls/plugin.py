"""Registration of the worker."""

from icrl.extensions.async_unrolls.worker import AsyncUnrollWorker
from icrl.sources.collect import ASYNC_WORKERS

ASYNC_WORKERS.append(AsyncUnrollWorker)
