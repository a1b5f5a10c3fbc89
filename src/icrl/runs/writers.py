"""Writers of curves: TensorBoard, a CSV file, and those that extensions and users register.

A training run that resumes continues its curves as those of an uninterrupted one.
"""

from __future__ import annotations

import csv
import importlib
import io
import math
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from icrl.config.modules import load_plugins, registrar
from icrl.contracts import PipelineError
from icrl.runs.files import write_atomically
from icrl.runs.processes import say

CSV = "scalars.csv"
PACE = {"max_queue": 100, "flush_secs": 10}  # points that may wait, and seconds until they are on disk at the latest
_EVENTS = "events.out.tfevents.*"
_COLUMNS = ("step", "tag", "value")
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
        stamps = [int(path.name.split(".")[3]) for path in folder.glob(_EVENTS)]
        if max(stamps, default=0) > time.time():
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


@writer("csv")
class _CSV(Writer):
    """Table of all points, one a row: curves have steps of their own, and a new one needs no new column."""

    curves = (CSV,)

    def __init__(self, folder: Path, done: int | None) -> None:
        self._path = folder / CSV
        if not self._path.exists():
            return
        last = math.inf if done is None else done or -1
        lines = self._path.read_text(encoding="utf-8").splitlines(keepends=True)
        try:  # a killed process may leave half a line
            kept = [line for line in lines[1:] if line.endswith("\n") and int(line.partition(",")[0]) <= last]
        except ValueError as error:
            raise PipelineError(f"{self._path} is damaged ({error}): remove it, and its curves begin here") from error
        if kept != lines[1:]:
            write_atomically(self._path, "".join([_line(_COLUMNS), *kept]).encode())

    def scalars(self, values: dict[str, float], step: int) -> None:
        with self._path.open("a", encoding="utf-8") as file:  # written at once, so nothing is left to flush
            head = _line(_COLUMNS) if not file.tell() else ""
            file.write(head + "".join(_line((step, tag, value)) for tag, value in values.items()))


def _line(cells: Iterable[Any]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()
