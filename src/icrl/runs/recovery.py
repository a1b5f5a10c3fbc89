"""What a long run does when it is asked to stop, or fails: save first, and never put a broken state in a good one's
place."""

import signal
import sys
import threading
import traceback
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

from tqdm import tqdm

from icrl.contracts import PipelineError, Stopped

_STOP, _SAVE = signal.SIGTERM, signal.SIGUSR2


class Recovery:
    """Signals and crashes of one training loop; a context manager around it.

    SIGTERM asks to save and end, SIGUSR2 to save and go on: both are answered between two iterations, so that a signal
    amid an iteration or a save harms nothing. Within the context an exception is a crash, unless it is a refusal of the
    program's or the system's (`PipelineError`, `OSError`): then `save_crash` may put the state aside, as `on_crash`
    says."""

    def __init__(self, on_crash: str, save_crash: Callable[[str], None]) -> None:
        """`on_crash`: save, skip or ask. `save_crash` writes the state with the traceback it is given."""
        self._on_crash, self._save_crash = on_crash, save_crash
        self._asked: set[int] = set()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # others are not allowed to
            self._before = {number: signal.signal(number, self._note) for number in (_STOP, _SAVE)}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if isinstance(error, Exception) and not isinstance(error, (PipelineError, OSError, Stopped)):
            self._put_aside(error)

    @property
    def save_now(self) -> bool:
        """Whether a signal asks for a checkpoint after this iteration."""
        return bool(self._asked)

    @property
    def stop_now(self) -> bool:
        """Whether the run is to end after this iteration."""
        return _STOP in self._asked

    def saved(self, where: str, stop: bool) -> None:
        """Say that the checkpoint which was asked for is there; raises `Stopped` where the run is to `stop`."""
        if stop:
            raise Stopped(f"SIGTERM: {where} is saved; the same command continues")
        self._asked.discard(_SAVE)  # a SIGTERM that has just come is still to be answered
        tqdm.write(f"SIGUSR2: {where} is saved")

    def finish(self, wait: Callable[[Callable[[], bool]], None], where: str) -> None:
        """When all is saved, `wait` for what is still under way, but only until the run is asked to end."""
        wait(lambda: self.stop_now)
        if self.stop_now:
            self.saved(where, stop=True)

    def _note(self, number: int, _: FrameType | None) -> None:
        self._asked.add(number)

    def _put_aside(self, error: Exception) -> None:
        question = f"{type(error).__name__}: {error}\nSave the state of the failed run?"
        if self._on_crash == "skip" or (self._on_crash == "ask" and not _yes(question)):
            return
        try:
            self._save_crash("".join(traceback.format_exception(error)))
        except Exception as refused:  # the first error is the one to be seen
            tqdm.write(f"the state of the failed run cannot be saved: {refused}", file=sys.stderr)


def _yes(question: str) -> bool:
    try:
        return input(f"{question} [y/n] ").strip().lower() in ("y", "yes")
    except (EOFError, KeyboardInterrupt):
        return False
