"""Table of all points of curves, `scalars.csv` in each folder of curves."""

import csv
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icrl.contracts import PipelineError
from icrl.runs.files import write_atomically
from icrl.runs.writers import Writer, writer

Floats = NDArray[np.floating[Any]]

CSV = "scalars.csv"
_HEAD = "step,tag,value\n"


@writer("csv")
class Table(Writer):
    """Table of points, one a row: curves have steps of their own, and a new one needs no new column."""

    curves = (CSV,)

    def __init__(self, folder: Path, done: int | None) -> None:
        self._path = folder / CSV
        if not self._path.exists():
            return
        last = math.inf if done is None else done or -1
        try:  # a killed process may leave half a line
            lines = self._path.read_text(encoding="utf-8").splitlines(keepends=True)
            kept = [line for line in lines[1:] if line.endswith("\n") and int(line.partition(",")[0]) <= last]
        except ValueError as error:
            raise PipelineError(f"{self._path} is damaged ({error}): remove it, and its curves begin here") from error
        if (whole := [_HEAD, *kept]) != lines:
            write_atomically(self._path, "".join(whole).encode())

    def scalars(self, values: dict[str, float], step: int) -> None:
        with self._path.open("a", encoding="utf-8", newline="") as file:  # written at once: nothing is left to flush
            if not file.tell():
                file.write(_HEAD)
            csv.writer(file, lineterminator="\n").writerows((step, tag, value) for tag, value in values.items())


def read_table(path: Path) -> dict[str, tuple[Floats, Floats]]:
    """Steps and values of each curve in a table, without half a line of a killed process."""
    curves: dict[str, list[tuple[int, float]]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(line for line in file if line.endswith("\n")):
            curves.setdefault(row["tag"], []).append((int(row["step"]), float(row["value"])))
    return {tag: tuple(np.array(points, dtype=float).T) for tag, points in curves.items()}
