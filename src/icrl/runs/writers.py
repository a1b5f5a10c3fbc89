"""Writers of curves: TensorBoard, and those that extensions and users register.

A training run that resumes continues its curves as those of an uninterrupted one.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from icrl.config.modules import load_plugins, registrar
from icrl.runs.processes import say

PACE = {"max_queue": 100, "flush_secs": 10}  # points that may wait, and seconds until they are on disk at the latest
_EVENTS = "events.out.tfevents.*"
_classes: dict[str, type[Writer]] = {}


def clear(folder: Path, *, anew: bool) -> None:
    """Remove the curves in `folder` and below, which are written again. With `anew` they are those of another run, and
    their identities are removed too."""
    for kind in writer_classes().values():
        for pattern in (*kind.curves, *(kind.identity if anew else ())):
            for file in folder.rglob(pattern):
                file.unlink()


def writer(name: str) -> Callable[[type[Any]], type[Any]]:
    """Decorator of a class of writers, chosen by `summaries.writer=name`."""
    return registrar("writer", name, _classes)


def writer_classes() -> dict[str, type[Writer]]:
    """Class of each writer by name."""
    load_plugins()
    return _classes


class Writer:
    """Writer of one run; a kind of writer leaves out what it cannot show. `flush` puts all points on disk, or raises
    `OSError`; calling `close` twice is fine."""

    library: ClassVar[str] = ""  # module that it needs, of an optional package
    curves: ClassVar[tuple[str, ...]] = ()  # patterns of its files with curves
    identity: ClassVar[tuple[str, ...]] = ()  # patterns of its files that say which run the curves are of

    def __init__(self, folder: Path, done: int | None) -> None:
        """Open the run in `folder`. If it resumes at step `done`, later points of an interrupted session are hidden
        (all points if `done` is 0; None appends)."""

    def scalars(self, values: dict[str, float], step: int) -> None:
        """Add a point to the curve of each tag."""

    def histogram(self, tag: str, values: Tensor, step: int) -> None:
        """Add the distribution of finite `values`."""

    def image(self, tag: str, pixels: np.ndarray, step: int) -> None:
        """Add an image from RGB `pixels` `[H, W, 3]` uint8."""

    def describe(self, options: dict[str, Any]) -> None:
        """Add the options of the run by their dotted keys."""

    def flush(self) -> None: ...

    def close(self) -> None: ...


@writer("tensorboard")
class _TensorBoard(Writer):
    curves = (_EVENTS,)

    def __init__(self, folder: Path, done: int | None) -> None:
        # TensorBoard orders event files by the times in their names.
        stamps = [path.name.split(".")[3] for path in folder.glob(_EVENTS)]
        if max((int(stamp) for stamp in stamps if stamp.isdecimal()), default=0) > time.time():
            say(
                f"the clock was set back since {folder} was written: TensorBoard may show points of an interrupted "
                "run again; checkpoints and results do not depend on the clock"
            )
        library: Any = importlib.import_module("torch.utils.tensorboard")
        self._writer = library.SummaryWriter(str(folder), purge_step=done and done + 1, **PACE)

    def scalars(self, values: dict[str, float], step: int) -> None:
        for tag, value in values.items():
            self._writer.add_scalar(tag, value, step)

    def histogram(self, tag: str, values: Tensor, step: int) -> None:
        self._writer.add_histogram(tag, values, step)

    def image(self, tag: str, pixels: np.ndarray, step: int) -> None:
        self._writer.add_image(tag, pixels, step, dataformats="HWC")

    def flush(self) -> None:
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()
