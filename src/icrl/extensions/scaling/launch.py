"""Engines that run resumable units: processes of this machine, Dask's workers, or jobs of Slurm through submitit.

An engine is a context manager of a function that submits a unit and returns its future. Every engine does a unit again
whose worker dies; locks and checkpoints see to it that nothing is lost or done twice (see `units`).
"""

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from os import environ
from pathlib import Path
from types import FrameType
from typing import Any
from weakref import WeakSet

from icrl.config.modules import describe_error, extra_module
from icrl.contracts import ConfigError, Stopped
from icrl.extensions.scaling.options import DaskLaunch, LaunchConfig, LocalLaunch, SubmititLaunch
from icrl.extensions.scaling.units import ATTEMPTS, ICRL, PATIENCE, Job, environment, resume, run_unit, stop
from icrl.runs.processes import Progress, say

_TICK = 0.1  # seconds between two looks at all futures


Submit = Callable[[Job], Any]  # returns the future of a unit, whose result is the reason of a failure


def run_jobs(
    jobs: Sequence[Job], options: Any, folder: Path, label: str, program: Sequence[str] = ICRL
) -> dict[str, str]:
    """Run `jobs` with the engine of `options` and logs in `folder`; returns the reasons of failed ones by name.

    A failed job also fails the jobs that need it, but no others; a needed job comes before those that need it.
    `program` starts a command of a job. Raises `ConfigError` if the engine is not installed, and `KeyboardInterrupt` or
    `Stopped` on a signal, after all units have ended."""
    if not jobs:
        return {}
    run = partial(run_unit, folder=str(folder), program=program, num_processes=options.num_processes)
    total = sum(job.updates for job in jobs)
    engine = ENGINES[options.name](options, folder, run)
    say(f"progress of each job: {folder}/NAME.log")
    with _signals(), engine as (submit, width), Progress(label, total, 0, "update") as progress:
        launch = _Launch(jobs, submit, width, progress)
        while launch.goes_on:
            launch.start()
            launch.collect()
            time.sleep(_TICK)
    return launch.failed


class _Launch:
    """Jobs that wait, run and have failed."""

    def __init__(self, jobs: Sequence[Job], submit: Submit, width: int, progress: Progress) -> None:
        """`width` is the number of jobs to submit at a time (0: all that need no other)."""
        self._waiting, self._running = {job.name: job for job in jobs}, dict[str, tuple[Job, Any, int]]()
        self._submit, self._width, self._progress = submit, width, progress
        self.failed = dict[str, str]()

    @property
    def goes_on(self) -> bool:
        return bool(self._waiting or self._running)

    def start(self) -> None:
        """Submit the jobs that need no other any more."""
        for job in [*self._waiting.values()]:
            if job.needs in self.failed:
                del self._waiting[job.name]
                self.failed[job.name] = f"{job.needs} failed"
            elif job.needs not in (*self._waiting, *self._running):
                if self._width and len(self._running) >= self._width:
                    return
                self._running[job.name] = self._waiting.pop(job.name), self._submit(job), 1

    def collect(self) -> None:
        """Take in the results of the jobs that have ended, and submit those again whose worker died."""
        for name, (job, unit, attempt) in [*self._running.items()]:
            if not unit.done():
                continue
            try:
                reason = unit.result()
            except Exception as error:  # each engine raises others
                reason = f"its worker died: {type(error).__name__} {' '.join(str(error).split())}"
                if attempt < ATTEMPTS:
                    say(f"{name}: {reason}; it is run again")
                    self._running[name] = job, self._submit(job), attempt + 1
                    continue
            del self._running[name]
            if reason:
                self.failed[name] = reason
            self._progress.advance(job.updates)
            say(f"{name}: {reason or 'done'}")
            self._progress.log(f"jobs left {len(self._waiting) + len(self._running)}")


@contextmanager
def _signals() -> Iterator[None]:
    """Context in which SIGTERM raises `Stopped`. A second signal must not cut short the end of the units."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stopped(number: int, _: FrameType | None) -> None:
        for other in before:
            signal.signal(other, signal.SIG_IGN)
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise Stopped("SIGTERM: the runs have ended; the same command continues")

    before = {number: signal.signal(number, stopped) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _local(options: LocalLaunch, folder: Path, run: Callable[[Job], str]) -> Iterator[tuple[Submit, int]]:
    """Threads of this process, each with a process of its own."""
    with ThreadPoolExecutor(options.num_workers) as pool:
        resume(str(folder))
        try:
            yield partial(pool.submit, run), 0
        finally:
            stop(str(folder))
            pool.shutdown(cancel_futures=True)


@contextmanager
def _dask(options: DaskLaunch, folder: Path, run: Callable[[Job], str]) -> Iterator[tuple[Submit, int]]:
    """Workers of a Dask cluster. A unit is done again by another worker if its worker dies."""
    dask = extra_module("distributed", "launch=dask", "dask")
    environ.update(environment())  # of the workers that are started here
    own = {"n_workers": options.num_workers, "threads_per_worker": 1, "dashboard_address": ":0"}
    units = WeakSet[Any]()  # a result that somebody keeps would be computed again if its worker died later

    def submit(job: Job) -> Any:
        units.add(unit := client.submit(run, job, key=f"{job.name}-{time.time_ns()}"))  # a name of its own each time
        return unit

    cluster = own if options.scheduler == "local" else {"address": options.scheduler}
    with _started(options, "scheduler", lambda: dask.Client(**cluster)) as client:
        say(f"dask: {client.scheduler.address}, dashboard {client.dashboard_link}")
        client.run(resume, str(folder))
        try:
            yield submit, 0
        finally:
            if not all(unit.done() for unit in units):
                client.run(stop, str(folder), on_error="ignore")  # a worker may just have died
                with suppress(TimeoutError):  # of a worker that is dead
                    dask.wait([*units], timeout=PATIENCE)


@contextmanager
def _submitit(options: SubmititLaunch, folder: Path, run: Callable[[Job], str]) -> Iterator[tuple[Submit, int]]:
    """Jobs of Slurm or, without it, processes that submitit starts on this machine."""
    submitit = extra_module("submitit", "launch=submitit", "submitit")
    environ.update(environment())
    executor = submitit.AutoExecutor(folder / "submitit")
    _started(options, "parameters", lambda: executor.update_parameters(**options.parameters))
    submitted: list[Any] = []

    def submit(job: Job) -> Any:
        executor.update_parameters(name=job.name)
        submitted.append(executor.submit(run, job))
        return submitted[-1]

    try:
        yield submit, options.num_workers
    finally:
        for job in submitted:
            if not job.done():
                job.cancel()


ENGINES: dict[str, Callable[..., Any]] = {"local": _local, "dask": _dask, "submitit": _submitit}


def _started(options: LaunchConfig, name: str, start: Callable[[], Any]) -> Any:
    """Result of `start`. Raises `ConfigError` for the option `name` if it fails."""
    try:
        return start()
    except Exception as error:  # each engine raises others
        given, said = f"launch.{name}={getattr(options, name)}", describe_error(error)
        raise ConfigError(f"{given}: launch.name={options.name} cannot start with it: {said}") from error
