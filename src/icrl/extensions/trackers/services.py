"""Services that show curves: Weights & Biases, MLflow.

A folder of logs is one run of each of them: `logs/<name>/gpt` is the run `<name>/gpt`.
"""

import importlib
import os
import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from icrl.contracts import PipelineError, Stopped
from icrl.runs.files import read_json, write_json
from icrl.runs.writers import PACE, Writer, writer

_PROJECT = "icrl"  # on Weights & Biases, and MLflow's experiment, unless their own variables name another
_SURE = 60_000  # milliseconds after which Weights & Biases has written a point that it was sent
_FORM = {"id": str, "steps": {str: int}, "unsure": [list]}  # of the file of a service
_LONGEST, _MOST = 500, 100  # characters of a parameter on MLflow, and parameters in a request


class _Point(NamedTuple):
    step: int
    tag: str
    value: float
    time: int  # milliseconds


class Service(Writer):
    """Run on a service, which takes points in batches and gives none back. A file keeps its identity and the last step
    of each curve, so a resumed run continues it, without gaps. A run that starts anew gets a new one."""

    def __init__(self, folder: Path, done: int | None) -> None:
        self._path, self._queue = folder / self.identity[0], list[_Point]()
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
        if len(self._queue) >= PACE["max_queue"] or waited >= PACE["flush_secs"]:
            self.flush()

    def flush(self) -> None:
        queue, self._queue, self._flushed = self._queue, list[_Point](), time.monotonic()
        if points := [point for point in queue if point.step > self._sent.get(point.tag, -1)]:
            self.send(points)
            self._sent |= {point.tag: point.step for point in points}
            self.keep()


@writer("wandb")
class WandB(Service):
    """Run of Weights & Biases, whose own variables apply: WANDB_MODE=offline, WANDB_PROJECT, WANDB_ENTITY."""

    library = "wandb.sdk"  # a part that a folder of the same name has not
    identity = ("wandb.json",)

    def __init__(self, folder: Path, done: int | None) -> None:
        super().__init__(folder, done)
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

    def describe(self, options: dict[str, Any]) -> None:
        self._run.config.update(options, allow_val_change=True)

    def close(self) -> None:
        self._run.finish(exit_code=int(sys.exception() is not None))
        self._unsure = []
        self.keep()


@writer("mlflow")
class MLflow(Service):
    """Run of MLflow, whose own variables apply: MLFLOW_TRACKING_URI (by default `mlflow.db` in the folder of all logs)
    and MLFLOW_EXPERIMENT_NAME."""

    library = "mlflow.tracking"  # a part that a folder of the same name has not
    identity = ("mlflow.json",)

    def __init__(self, folder: Path, done: int | None) -> None:
        super().__init__(folder, done)
        self._mlflow: Any = importlib.import_module("mlflow")
        logs, name = _place(folder)
        uri, experiment = os.environ.get("MLFLOW_TRACKING_URI"), os.environ.get("MLFLOW_EXPERIMENT_NAME", _PROJECT)
        own = None if uri else (logs / "mlflow").as_uri()  # of images
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
            metrics = [metric(point.tag, point.value, point.time, point.step) for point in points]
            self._client.log_batch(self.id, metrics)

    def image(self, tag: str, pixels: np.ndarray, step: int) -> None:
        with _reported("mlflow"):
            self._client.log_image(self.id, pixels, f"{tag}.png")

    def describe(self, options: dict[str, Any]) -> None:
        with _reported("mlflow"):
            known = self._client.get_run(self.id).data.params  # which cannot change
            new = {key: str(value)[:_LONGEST] for key, value in options.items() if key not in known}
            params = [self._mlflow.entities.Param(key, value) for key, value in new.items()]
            for first in range(0, len(params), _MOST):
                self._client.log_batch(self.id, params=params[first : first + _MOST])

    def close(self) -> None:
        with _reported("mlflow"):
            error = sys.exception()  # that ends the run
            ended = "KILLED" if isinstance(error, Stopped) else "FAILED" if error else "FINISHED"
            self._client.set_terminated(self.id, ended)


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
