"""Where the time of an iteration goes: `torch.profiler` around a few of them."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import torch
from torch.profiler import ProfilerAction, ProfilerActivity, profile

from icrl.contracts import PipelineError
from icrl.runs.files import write_atomically

_ROWS = 40  # of a table in the report
_ORDERS = {"self_cpu_time_total": "own CPU time", "cpu_time_total": "CPU time with what it calls"}
_GPU_ORDERS = {"self_device_time_total": "own GPU time"}


class Profiler:
    """Records iterations 2 to `num_iterations` + 1 of this process; the first warms up caches, compiler and profiler.

    Call `step` after every iteration. Once all are recorded, or when the context is left before that, by the end of
    training or by an exception, `folder`/profile gets train.pt.trace.json, a Chrome trace for TensorBoard or Perfetto,
    and report.txt, the operations that took longest; both replace those of an earlier process. `report` gets a line
    that says where they are. With 0 iterations nothing happens at all.

    Raises `PipelineError` where the files cannot be written; but an exception inside the context is never replaced."""

    def __init__(self, folder: Path, num_iterations: int, report: Callable[[str], None]) -> None:
        self._folder, self._num_iterations, self._report = folder / "profile", num_iterations, report
        self._gpu = torch.cuda.is_available()
        self._done = 0  # iterations
        self._profile: profile | None = None

    def __enter__(self) -> Self:
        if self._num_iterations:
            activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * self._gpu
            self._profile = profile(activities=activities, schedule=_schedule)
            self._profile.start()
        return self

    def step(self) -> None:
        if self._profile is None:
            return
        self._done += 1
        if self._done > self._num_iterations:
            self._finish(self._profile)
        else:
            self._profile.step()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._profile is None:
            return
        if error is None:
            self._finish(self._profile)
        else:
            with suppress(Exception):  # the one of training says more
                self._finish(self._profile)

    def _finish(self, recorded: profile) -> None:
        self._profile = None  # first of all: what fails here is not tried again
        recorded.stop()
        if not self._done:
            self._report("no profile: training ended in the first iteration, which is not recorded")
            return
        _write_trace(recorded, self._folder / "train.pt.trace.json")
        averages = recorded.key_averages()
        tables = [
            f"By {meaning}\n{averages.table(sort_by=order, row_limit=_ROWS)}"
            for order, meaning in (_ORDERS | (_GPU_ORDERS if self._gpu else {})).items()
        ]
        write_atomically(self._folder / "report.txt", "\n".join(tables).encode())
        self._report(f"profile of {self._done - 1} whole iterations: {self._folder}")


def _schedule(iteration: int) -> ProfilerAction:
    return ProfilerAction.RECORD if iteration else ProfilerAction.WARMUP


def _write_trace(recorded: profile, path: Path) -> None:
    """What writes the trace goes through a temporary file and is silent when it fails, so look whether it came."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        recorded.export_chrome_trace(str(path))
        if path.exists():
            return
        path.with_name(f"{path.name}.tmp").unlink(missing_ok=True)
    except OSError as error:
        raise PipelineError(f"cannot write {path}: {error.strerror}") from error
    raise PipelineError(f"cannot write {path}: is the disk full?")
