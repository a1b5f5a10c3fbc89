"""Checkpointed state of a training run: one for all kinds of training.

A resumed run ends with bit-identical results to an uninterrupted one. It saves when a checkpoint is due and on signals
(SIGTERM: save and end, SIGUSR2: save and continue). After a crash it saves a state for inspection.
"""

import signal
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Protocol, Self, TypeVar

import torch
from torch import Tensor

from icrl.contracts import Json, PipelineError, Stopped
from icrl.runs import checkpoint
from icrl.runs.checkpoint import CheckpointsConfig, Interval
from icrl.runs.distributed import Ranks
from icrl.runs.metrics import MetricLogger
from icrl.runs.processes import say

Part = TypeVar("Part", bound="Stateful")
_STOP, _SAVE = signal.SIGTERM, signal.SIGUSR2


class Stateful(Protocol):
    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any], /) -> object: ...


class RunState:
    """Progress of a run (`done` of `total` steps) and named parts, saved and restored together.

    The training loop runs inside it as a context manager. Signals are handled between two iterations, so one that
    arrives during an iteration or a save does no harm. A crash is any exception but a `PipelineError` or an `OSError`.
    """

    def __init__(
        self,
        folder: Path,
        description: Json,
        options: CheckpointsConfig,
        total: int,
        device: torch.device,
        *,
        unit: str = "update",
        ranks: Ranks | None = None,
    ) -> None:
        """Read the newest checkpoint in `folder`. All are stored with the `description`, which names the owner."""
        self.folder, self.description, self.total, self.unit = folder, description, total, unit
        self.ranks, self._options = ranks or Ranks(), options
        self.before_save: Callable[[], None] = lambda: None  # raises if the state must not be saved
        self.loggers: list[MetricLogger] = []  # flushed before each save
        self._interval = Interval(options.num_checkpoints, options.checkpoint_interval, total, end=True)
        self._parts: dict[str, Stateful] = {}
        saved, self.resumed_from = checkpoint.load_newest(folder, "last", device) or ({}, None)
        self._saved: dict[str, Any] = dict(saved)
        self.is_fresh = not self._saved
        self.done: int = self.resumed_from["step"] if self.resumed_from else 0
        self._saved_at = self.done if self.resumed_from else -1
        self._asked: set[int] = set()
        self._handlers: dict[int, Any] = {}

    def restore(self, name: str, part: Part, is_optional: bool = False) -> Part:
        """Restore `part` if the run resumes, and save it from now on. An optional one that is not there begins anew."""
        self._parts[name] = part
        if not self.is_fresh and (name in self._saved or not is_optional):
            if name not in self._saved:
                lacking = f"the checkpoint of {self.where} in {self.folder} has no part {name}"
                raise PipelineError(f"{lacking}: another version wrote it; convert it, or give another name=")
            part.load_state_dict(self._saved.pop(name))
        return part

    @property
    def where(self) -> str:
        return f"{self.unit} {self.done} of {self.total}"

    @property
    def is_saved(self) -> bool:
        """True if a checkpoint of the current step is on disk, as after resuming."""
        return self.done == self._saved_at

    def save_if_due(self) -> None:
        """Write a checkpoint if one is due or a signal asked for it; raises `Stopped` if the run must end."""
        asked = self.ranks.any(bool(self._asked))
        if not self.is_saved and (asked or self._interval.due(self.done)):
            self.save("last", self._options.keep_last)
            self._saved_at = self.done
        if not asked:
            return
        self._stop_if(self.ranks.any(_STOP in self._asked))
        self._asked.discard(_SAVE)  # a new SIGTERM is handled next time
        if self.ranks.is_writer:
            say(f"SIGUSR2: {self.where} is saved")

    def save(self, kind: str, keep: int, **of_crash: str) -> None:
        """Write a checkpoint of this kind. Rank 0 writes, but all ranks call this. `of_crash` joins the description."""
        if not of_crash:
            self.before_save()
        for logger in self.loggers:
            logger.flush()
        state = {"step": self.done} | {name: part.state_dict() for name, part in self._parts.items()}
        if self.ranks.is_writer:
            checkpoint.save(self.folder, kind, self.done, state, self.description | of_crash, keep)

    def finish(self, wait: Callable[[Callable[[], bool]], None]) -> None:
        """`wait` for pending evaluations after the last save, or until a signal asks the run to end."""
        wait(lambda: _STOP in self._asked)
        self._stop_if(_STOP in self._asked)

    def _stop_if(self, asked: bool) -> None:
        if asked:
            raise Stopped(f"SIGTERM: {self.where} is saved; the same command continues")

    def __enter__(self) -> Self:
        def keep_request(number: int, _: FrameType | None) -> None:
            for run in _RUNNING:
                run._asked.add(number)

        for run in _RUNNING:
            self._asked |= run._asked
        _RUNNING.append(self)
        if threading.current_thread() is threading.main_thread():  # only the main thread may set handlers
            self._handlers = {number: signal.signal(number, keep_request) for number in (_STOP, _SAVE)}
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        _RUNNING.remove(self)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        if isinstance(error, Exception) and not isinstance(error, (PipelineError, OSError, Stopped)):
            self._save_crash(error)

    def _save_crash(self, error: Exception) -> None:
        """Save the state of a failed run for inspection, as `crash-*.pt`; no run resumes from it."""
        if not self.ranks.is_writer:
            return
        self.ranks.leave()
        try:
            self.save("crash", 1, error="".join(traceback.format_exception(error)))
        except Exception as refused:  # the first error must stay visible
            say(f"the state of the failed run cannot be saved: {refused}", file=sys.stderr)


_RUNNING: list[RunState] = []  # several if one program trains several models; a signal is for all of them


class Generators:
    """States of the global random generators of all ranks, which dropout uses."""

    def __init__(self, device: torch.device, ranks: Ranks) -> None:
        self._device, self._ranks = device, ranks

    def state_dict(self) -> dict[str, list[Tensor]]:
        """States by kind of device, one per rank. Called by all ranks."""
        states = {"cpu": torch.get_rng_state()}
        if self._device.type == "cuda":
            states["cuda"] = torch.cuda.get_rng_state(self._device)
        return {kind: self._ranks.gather(state) for kind, state in states.items()}

    def load_state_dict(self, state: dict[str, list[Tensor]]) -> None:
        for kind in {"cpu", self._device.type}:
            states = state.get(kind, [])
            if self._ranks.rank < len(states):  # there may be more ranks now
                library, where = (torch.cuda, [self._device]) if kind == "cuda" else (torch, [])
                library.set_rng_state(states[self._ranks.rank].cpu(), *where)
