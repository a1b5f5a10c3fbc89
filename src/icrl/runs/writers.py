"""Writers of curves: TensorBoard, a CSV file, Weights & Biases, MLflow.

A folder of logs is one run of each of them: `logs/<name>/gpt` is the run `<name>/gpt`. A training run that resumes
continues that run, with the curves of an uninterrupted one.
"""

import csv
import importlib
import io
import math
import os
import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from torch import Tensor

from icrl.contracts import PipelineError
from icrl.runs.files import read_json, write_atomically, write_json
from icrl.runs.processes import say

WriterName = Literal["tensorboard", "csv", "wandb", "mlflow"]

CSV = "scalars.csv"
_EVENTS = "events.out.tfevents.*"
_COLUMNS = ("step", "tag", "value")
LIBRARIES = {"wandb": "wandb.sdk", "mlflow": "mlflow.tracking"}  # a part that a folder of the same name has not
_PROJECT = "icrl"  # on Weights & Biases, and MLflow's experiment, unless their own variables name another
_SURE = 60_000  # milliseconds after which Weights & Biases has written a point that it was sent
_FORM = {"id": str, "steps": {str: int}, "unsure": [list]}  # of the file of a service
_LONGEST, _MOST = 500, 100  # characters of a parameter on MLflow, and parameters in a request


def clear(folder: Path, *, anew: bool) -> None:
    """Remove the curves in `folder` and below, which are written again. With `anew` they are those of another run, and
    a service gets a new run for them."""
    for pattern in (_EVENTS, CSV, *([f"{name}.json" for name in LIBRARIES] if anew else [])):
        for file in folder.rglob(pattern):
            file.unlink()


class Writer:
    """Writer of one run; a kind of writer leaves out what it cannot show. `flush` puts all points on disk, or raises
    `OSError`; calling `close` twice is fine."""

    def scalars(self, values: dict[str, float], step: int) -> None:
        """Add a point to the curve of each tag."""

    def histogram(self, tag: str, values: Tensor, step: int) -> None:
        """Add the distribution of finite `values`."""

    def image(self, tag: str, pixels: np.ndarray, step: int) -> None:
        """Add an image from RGB `pixels` `[H, W, 3]` uint8."""

    def describe(self, texts: dict[str, str], options: dict[str, Any]) -> None:
        """Add Markdown texts by tag, and the options of the run by their dotted keys."""

    def bands(self, layout: dict[str, dict[str, list[Any]]]) -> None:
        """Lay out charts of several curves, as TensorBoard's `add_custom_scalars` takes them."""

    def flush(self) -> None: ...

    def close(self) -> None: ...


class _TensorBoard(Writer):
    def __init__(self, folder: Path, done: int | None, pace: dict[str, int]) -> None:
        # TensorBoard orders event files by the times in their names.
        stamps = [int(path.name.split(".")[3]) for path in folder.glob(_EVENTS)]
        if max(stamps, default=0) > time.time():
            say(
                f"the clock was set back since {folder} was written: TensorBoard may show points of an interrupted "
                "run again; checkpoints and results do not depend on the clock"
            )
        library: Any = importlib.import_module("torch.utils.tensorboard")
        self._writer = library.SummaryWriter(str(folder), purge_step=done and done + 1, **pace)

    def scalars(self, values: dict[str, float], step: int) -> None:
        for tag, value in values.items():
            self._writer.add_scalar(tag, value, step)

    def histogram(self, tag: str, values: Tensor, step: int) -> None:
        self._writer.add_histogram(tag, values, step)

    def image(self, tag: str, pixels: np.ndarray, step: int) -> None:
        self._writer.add_image(tag, pixels, step, dataformats="HWC")

    def describe(self, texts: dict[str, str], options: dict[str, Any]) -> None:
        for tag, text in texts.items():
            self._writer.add_text(tag, text, 0)

    def bands(self, layout: dict[str, dict[str, list[Any]]]) -> None:
        self._writer.add_custom_scalars(layout)

    def flush(self) -> None:
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class _CSV(Writer):
    """Table of all points, one a row: curves have steps of their own, and a new one needs no new column."""

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


class _Point(NamedTuple):
    step: int
    tag: str
    value: float
    time: int  # milliseconds


class _Service(Writer):
    """Run on a service, which takes points in batches and gives none back. A file keeps its identity and the last step
    of each curve, so a resumed run continues it, without gaps. A run that starts anew gets a new one."""

    def __init__(self, name: str, folder: Path, done: int | None, pace: dict[str, int]) -> None:
        self._path, self._pace, self._queue = folder / f"{name}.json", pace, list[_Point]()
        if done == 0:
            self._path.unlink(missing_ok=True)
        about = read_json(self._path, _FORM) if self._path.exists() else {"id": "", "steps": {}, "unsure": []}
        self.id: str = about["id"]
        self._sent: dict[str, int] = about["steps"]
        self._unsure = [_Point(*point) for point in about["unsure"]]  # the service may lose them with this process
        self._flushed = time.monotonic()

    def keep(self) -> None:
        write_json(self._path, {"id": self.id, "steps": self._sent, "unsure": self._unsure})

    def send(self, points: list[_Point]) -> None: ...

    def scalars(self, values: dict[str, float], step: int) -> None:
        now = int(time.time() * 1000)
        self._queue += [_Point(step, tag, value, now) for tag, value in values.items()]
        waited = time.monotonic() - self._flushed
        if len(self._queue) >= self._pace["max_queue"] or waited >= self._pace["flush_secs"]:
            self.flush()

    def flush(self) -> None:
        queue, self._queue, self._flushed = self._queue, list[_Point](), time.monotonic()
        if points := [point for point in queue if point.step > self._sent.get(point.tag, -1)]:
            self.send(points)
            self._sent |= {point.tag: point.step for point in points}
            self.keep()


class _WandB(_Service):
    """Run of Weights & Biases, whose own variables apply: WANDB_MODE=offline, WANDB_PROJECT, WANDB_ENTITY."""

    def __init__(self, folder: Path, done: int | None, pace: dict[str, int]) -> None:
        super().__init__("wandb", folder, done, pace)
        self._wandb: Any = importlib.import_module("wandb")
        self.id = self.id or secrets.token_hex(8)
        self.keep()
        _, name = _place(folder)
        with _reported("wandb"):
            self._run = self._wandb.init(
                dir=folder,
                project=os.environ.get("WANDB_PROJECT", _PROJECT),
                id=self.id,
                name=name,
                group=name.partition("/")[0],
                resume="allow",
                reinit="create_new",
                settings=self._wandb.Settings(console="off", silent=True),
            )
            self._run.define_metric("step", hidden=True)
            self._run.define_metric("*", step_metric="step")
        self._log(self._unsure)

    def send(self, points: list[_Point]) -> None:
        self._unsure = [point for point in self._unsure + points if point.time > points[-1].time - _SURE]
        self._log(points)

    def _log(self, points: list[_Point]) -> None:
        for step, same in groupby(points, itemgetter(0)):
            self._run.log({"step": step} | {point.tag: point.value for point in same})

    def histogram(self, tag: str, values: Tensor, step: int) -> None:
        if step > self._sent.get(tag, -1):
            self._run.log({"step": step, tag: self._wandb.Histogram(values.detach().cpu().numpy())})
            self._sent[tag] = step

    def image(self, tag: str, pixels: np.ndarray, step: int) -> None:
        self._run.log({"step": step, tag: self._wandb.Image(pixels)})

    def describe(self, texts: dict[str, str], options: dict[str, Any]) -> None:
        self._run.config.update(options, allow_val_change=True)

    def close(self) -> None:
        self._run.finish()
        self._unsure = []
        self.keep()


class _MLflow(_Service):
    """Run of MLflow, whose own variables apply: MLFLOW_TRACKING_URI (by default `mlflow.db` in the folder of all logs)
    and MLFLOW_EXPERIMENT_NAME."""

    def __init__(self, folder: Path, done: int | None, pace: dict[str, int]) -> None:
        super().__init__("mlflow", folder, done, pace)
        self._mlflow: Any = importlib.import_module("mlflow")
        logs, name = _place(folder)
        uri, experiment = os.environ.get("MLFLOW_TRACKING_URI"), os.environ.get("MLFLOW_EXPERIMENT_NAME", _PROJECT)
        own = None if uri else (logs / "mlflow").as_uri()  # of images and texts
        with _reported("mlflow"):
            self._client: Any = self._mlflow.MlflowClient(uri or f"sqlite:///{logs / 'mlflow.db'}")
            if self.id:
                self._client.update_run(self.id, status="RUNNING")
                return
            found = self._client.get_experiment_by_name(experiment)
            number = found.experiment_id if found else self._client.create_experiment(experiment, own)
            self.id = self._client.create_run(number, run_name=name).info.run_id
        self.keep()

    def send(self, points: list[_Point]) -> None:
        metric = self._mlflow.entities.Metric
        with _reported("mlflow"):
            self._client.log_batch(
                self.id, [metric(point.tag, point.value, point.time, point.step) for point in points]
            )

    def image(self, tag: str, pixels: np.ndarray, step: int) -> None:
        with _reported("mlflow"):
            self._client.log_image(self.id, pixels, f"{tag}.png")

    def describe(self, texts: dict[str, str], options: dict[str, Any]) -> None:
        with _reported("mlflow"):
            known = self._client.get_run(self.id).data.params  # which cannot change
            new = {key: str(value)[:_LONGEST] for key, value in options.items() if key not in known}
            params = [self._mlflow.entities.Param(key, value) for key, value in new.items()]
            for first in range(0, len(params), _MOST):
                self._client.log_batch(self.id, params=params[first : first + _MOST])
            for tag, text in texts.items():
                self._client.log_text(self.id, text, f"{tag}.md")

    def close(self) -> None:
        with _reported("mlflow"):
            self._client.set_terminated(self.id)


def _place(folder: Path) -> tuple[Path, str]:
    """Folder of all logs, and the name of the run that `folder` is in it."""
    folder = folder.absolute()
    logs = next((parent for parent in folder.parents if parent.name == "logs"), folder.parent)
    return logs, folder.relative_to(logs).as_posix()


@contextmanager
def _reported(name: str) -> Iterator[None]:
    """Context that reports errors of a service in one line, with a way out."""
    try:
        yield
    except Exception as error:  # of any class of the library
        text = " ".join(f"{type(error).__name__}: {error}".split())
        offline = " With WANDB_MODE=offline it writes files, for `wandb sync` later." if name == "wandb" else ""
        raise PipelineError(f"summaries.writer={name} failed, {text}. The same command continues.{offline}") from error


def make_writers(names: Iterable[WriterName], folder: Path, done: int | None, pace: dict[str, int]) -> list[Writer]:
    """Writers of the run in `folder`. If it resumes at step `done`, later points of an interrupted session are hidden
    (all points if `done` is 0; None appends). `pace` holds `flush_secs` and `max_queue`."""
    kinds = {
        "tensorboard": lambda: _TensorBoard(folder, done, pace),
        "csv": lambda: _CSV(folder, done),
        "wandb": lambda: _WandB(folder, done, pace),
        "mlflow": lambda: _MLflow(folder, done, pace),
    }
    folder.mkdir(parents=True, exist_ok=True)
    return [kinds[name]() for name in dict.fromkeys(names)]
