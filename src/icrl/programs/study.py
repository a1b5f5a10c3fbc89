"""Comparison of variants: train each one with several seeds through all stages, in parallel, and write a report.

python -m src.study study=NAME [KEY=VALUE ...]      -> logs/<name>/: results.json, table.md, study.png

All runs get the options; a variant adds its own. Stages run as separate commands, so the same command resumes a stopped
study without repeating finished stages. Each run <name>-<variant>-seed<seed> writes its output to logs/<name>/<run>.log
and its files to logs/<run>/.
"""

import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tqdm import tqdm

import icrl
from icrl.config.command_line import run_stage
from icrl.contracts import PipelineError, Stopped
from icrl.runs.files import only_writer
from icrl.runs.metrics import Progress
from icrl.studies.plan import Job, plan
from icrl.studies.report import write_report

POLL = 0.2  # seconds between two checks of processes and signals
PATIENCE = 20.0  # seconds that a stopped process has to save its work
ICRL = (sys.executable, "-m", "icrl")


def run_jobs(jobs: Sequence[Job], num_workers: int, folder: Path, program: Sequence[str] = ICRL) -> dict[str, str]:
    """Run `jobs`, `num_workers` at a time, with logs in `folder`; returns the reasons of failed ones by name.

    A failed job also fails the jobs that need it, but no others. `program` starts a command of a job. Raises
    `KeyboardInterrupt` or `Stopped` on a signal. No process outlives this call."""
    waiting, running = list(jobs), list[_Running]()
    failed: dict[str, str] = {}
    with Progress("study", sum(job.updates for job in jobs), 0, "update", bool(jobs)) as progress, _signals() as asked:
        try:
            while waiting or running:
                unfinished = {job.name for job in (*waiting, *(one.job for one in running))}
                ready = [job for job in waiting if job.needs not in unfinished]
                for job in ready[: num_workers - len(running)]:
                    waiting.remove(job)
                    if job.needs in failed:
                        failed[job.name] = f"{job.needs} failed"
                    else:
                        running.append(_Running(job, folder, program))
                time.sleep(POLL)
                if signal.SIGINT in asked:
                    raise KeyboardInterrupt
                if asked:
                    raise Stopped("SIGTERM: the runs have ended; the same command continues")
                for one in [one for one in running if one.ended()]:
                    running.remove(one)
                    if one.process.returncode:
                        failed[one.job.name] = one.reason()
                    progress.advance(one.job.updates)
                    tqdm.write(f"{one.job.name}: {failed.get(one.job.name, 'done')}")
                    progress.log({"jobs left": len(waiting) + len(running)})
        finally:
            for one in running:
                one.process.terminate()
            for one in running:
                one.end()
    return failed


def main(options: Sequence[str], run: Callable[[Sequence[Job], int, Path], dict[str, str]] = run_jobs) -> Path:
    """Run the missing parts of the study with the command line `options`; returns the folder with its results."""
    config, rows, jobs = plan(options)
    folder = config.folder("logs")
    with only_writer(folder):
        if failed := run(jobs, config.study.num_workers, folder):
            reasons = "; ".join(f"{name}: {reason}" for name, reason in failed.items())
            raise PipelineError(f"{len(failed)} of {len(jobs)} jobs failed; the same command retries them: {reasons}")
        print(write_report(folder, config, rows))
    print(f"numbers, table and picture: {folder}")
    return folder


class _Running:
    """Running job: its commands run one after another, each in a separate process, with one log."""

    def __init__(self, job: Job, folder: Path, program: Sequence[str]) -> None:
        self.job, self._log = job, folder / f"{job.name}.log"
        self._processes = self._start(program)
        self.process = next(self._processes)

    def _start(self, program: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
        path = os.pathsep.join((str(Path(icrl.__file__).parents[1]), os.environ.get("PYTHONPATH", "")))
        environment = os.environ | {"PYTHONPATH": path.rstrip(os.pathsep), "ICRL_ENDS_WITH_LAUNCHER": "1"}
        with self._log.open("w") as log:
            for command in self.job.commands:
                print(f"$ icrl {shlex.join(command)}", file=log, flush=True)
                yield subprocess.Popen([*program, *command], stdout=log, stderr=log, env=environment)

    def ended(self) -> bool:
        """Whether the last command finished or one failed; starts the next command after a success."""
        while self.process.poll() == 0 and (following := next(self._processes, None)):
            self.process = following
        return self.process.poll() is not None

    def end(self) -> None:
        """Wait for the process, which was told to stop; kill it if it takes too long."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(PATIENCE)
        self.process.kill()
        self.process.wait()

    def reason(self) -> str:
        """Reason of the failure: the error in the log, or its last line."""
        lines = [line.strip() for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("error: ")]
        return f"{(errors or lines)[-1]} (exit code {self.process.returncode}, {self._log})"


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Stop signals received so far. They are only recorded, so that none interrupts the start of a process."""
    asked: list[int] = []
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():  # only the main thread may set handlers
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, lambda came, _: asked.append(came))
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def command() -> None:
    """Run this program with the options of the command line."""
    run_stage(lambda _: main(sys.argv[1:]), "src.study", __doc__ or "")
