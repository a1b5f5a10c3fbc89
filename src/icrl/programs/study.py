"""Compare variants: train each of them with several seeds through all stages, side by side, and report.

python -m src.study study=NAME [KEY=VALUE ...]      -> logs/<name>/: results.json, table.md, study.png

The options reach every run; a variant adds its own. The stages run as if each were typed, so that a study that was
stopped goes on with the same command, and what is done is not done again. What they say is in logs/<name>/<run>.log,
what they make in logs/<run>/, where <run> is <name>-<variant>-seed<seed>.
"""

import os
import runpy
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

from icrl.config.command_line import run_stage
from icrl.contracts import PipelineError, Stopped
from icrl.runs.files import only_writer
from icrl.runs.metrics import Progress
from icrl.runs.processes import end_with_parent, start_quietly
from icrl.studies.plan import Job, plan
from icrl.studies.report import write_report

_GLANCE = 0.2  # seconds between two looks at whether a signal has come


def main(options: Sequence[str]) -> Path:
    """Do what is missing of the study that the command line `options` ask for; returns the folder with its results."""
    config, rows, jobs = plan(options)
    folder = config.folder("logs")
    with only_writer(folder):
        if failed := run_jobs(jobs, config.study.num_workers, folder):
            reasons = "; ".join(f"{name}: {reason}" for name, reason in failed.items())
            raise PipelineError(f"{len(failed)} of {len(jobs)} jobs failed, the same command tries again: {reasons}")
        print(write_report(folder, config, rows))
    print(f"numbers, table and picture: {folder}")
    return folder


class Running(NamedTuple):
    """A job and the process that does it."""

    job: Job
    process: BaseProcess
    kill: Callable[[], object]
    log: Path


def run_jobs(jobs: Sequence[Job], num_workers: int, folder: Path) -> dict[str, str]:
    """Do `jobs`, so many at a time, each in a process with a log in `folder`; returns why some failed, by name. One
    that fails takes those that need it with it, and no others.

    Raises `KeyboardInterrupt` or `Stopped` on a signal; the processes end with this."""
    waiting, running = list(jobs), list[Running]()
    failed: dict[str, str] = {}
    with Progress("study", sum(job.updates for job in jobs), 0, "update", bool(jobs)) as progress, signals() as asked:
        try:
            while waiting or running:
                unfinished = {job.name for job in (*waiting, *(one.job for one in running))}
                ready = [job for job in waiting if job.needs not in unfinished]
                for job in ready[: num_workers - len(running)]:
                    waiting.remove(job)
                    if job.needs in failed:
                        failed[job.name] = f"{job.needs} failed"
                    else:
                        running.append(_started(job, folder))
                wait([one.process.sentinel for one in running], _GLANCE)
                _answer(asked)
                for one in [one for one in running if one.process.exitcode is not None]:
                    running.remove(one)
                    if one.process.exitcode:
                        failed[one.job.name] = _reason(one)
                    progress.advance(one.job.updates)
                    tqdm.write(f"{one.job.name}: {failed.get(one.job.name, 'done')}")
                    progress.log({"jobs left": len(waiting) + len(running)})
        finally:
            for one in running:
                one.kill()
                one.process.join()
    return failed


@contextmanager
def signals() -> Iterator[list[int]]:
    """Those that asked to end so far: noted, so that none comes amid the start of a process."""
    asked: list[int] = []
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():  # others are not allowed to
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, lambda came, _: asked.append(came))
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _answer(asked: Sequence[int]) -> None:
    if signal.SIGINT in asked:
        raise KeyboardInterrupt
    if asked:
        raise Stopped("SIGTERM: the runs have ended; the same command continues")


def _started(job: Job, folder: Path) -> Running:
    log = folder / f"{job.name}.log"
    log.unlink(missing_ok=True)  # what an earlier attempt said is not why this one fails
    process = get_context("spawn").Process(target=_do, args=(job.commands, log), name=job.name)
    return Running(job, process, start_quietly(process), log)


def _do(commands: Sequence[Sequence[str]], log: Path) -> None:
    """What a process does."""
    end_with_parent(1)
    with log.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    run_commands(commands)


def run_commands(commands: Sequence[Sequence[str]]) -> None:
    """Run each command as if it were typed; the first that fails ends this with `SystemExit`."""
    for module, *options in commands:
        print(f"$ python -m {module} {shlex.join(options)}", flush=True)
        sys.argv = [module, *options]
        runpy.run_module(module, run_name="__main__")


def _reason(one: Running) -> str:
    """Why a job failed: the error, or the last that it said."""
    text = one.log.read_text(errors="replace") if one.log.exists() else ""
    said = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in said if line.startswith("error: ")]
    return f"{(errors or said or ['it said nothing'])[-1]} (exit code {one.process.exitcode}, {one.log})"


def command() -> None:
    """Run this program with the options of the command line."""
    run_stage(lambda _: main(sys.argv[1:]), "src.study", __doc__ or "")
