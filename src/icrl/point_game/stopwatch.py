"""Stopwatch for the phases of a run."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class Stopwatch:
    """Milliseconds spent in named phases. The time of a nested phase is not part of the outer one, so phases add up.

    It measures only if `active`. On a GPU each change of phase waits for earlier kernels."""

    def __init__(self, active: bool, device: torch.device) -> None:
        self._active, self._gpu = active, device.type == "cuda"
        self._phase: str | None = None
        self._since = 0.0
        self.milliseconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        if not self._active:
            yield
            return
        outer = self._enter(name)
        try:
            yield
        finally:
            self._enter(outer)

    def _enter(self, name: str | None) -> str | None:
        """Change to the phase `name`; returns the previous one."""
        if self._gpu:
            torch.cuda.synchronize()
        now, before = time.perf_counter(), self._phase
        if before is not None:
            self.milliseconds[before] = self.milliseconds.get(before, 0.0) + 1000 * (now - self._since)
        self._phase, self._since = name, now
        return before
