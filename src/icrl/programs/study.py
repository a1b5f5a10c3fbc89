"""Comparison of variants: train each one with several seeds through all stages, in parallel, and write a report.

python -m src.study study=NAME [KEY=VALUE ...]      -> logs/<name>/: results.json, table.md, study.png

All runs get the options; a variant adds its own. Stages run as separate commands, so the same command resumes a stopped
study without repeating finished stages. Each run <name>-<variant>-seed<seed> writes its output to logs/<name>/<run>.log
and its files to logs/<run>/.
"""

import asyncio
import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from tqdm import tqdm

import icrl
from icrl.contracts import PipelineError, Stopped
from icrl.runs.files import only_writer
from icrl.runs.metrics import Progress
from icrl.studies.plan import Job, plan
from icrl.studies.report import write_report

PATIENCE = 20.0  # seconds that a stopped process has to save its work
ICRL = (sys.executable, "-m", "icrl")


def run_jobs(jobs: Sequence[Job], num_workers: int, folder: Path, program: Sequence[str] = ICRL) -> dict[str, str]:
    """Run `jobs`, `num_workers` at a time, with logs in `folder`; returns the reasons of failed ones by name.

    A failed job also fails the jobs that need it, but no others. `program` starts a command of a job. Raises
    `KeyboardInterrupt` or `Stopped` on a signal. No process outlives this call."""
    asked: list[int] = []  # the signal that stops the study
    try:
        return asyncio.run(_run_jobs(jobs, num_workers, folder, program, asked))
    except asyncio.CancelledError:
        if asked == [signal.SIGINT]:
            raise KeyboardInterrupt from None
        raise Stopped("SIGTERM: the runs have ended; the same command continues") from None


async def _run_jobs(
    jobs: Sequence[Job], num_workers: int, folder: Path, program: Sequence[str], asked: list[int]
) -> dict[str, str]:
    failed, slots, tasks = dict[str, str](), asyncio.Semaphore(num_workers), dict[str, asyncio.Task[None]]()
    left = len(jobs)
    if threading.current_thread() is threading.main_thread() and (task := asyncio.current_task()):

        def stop(number: int) -> None:
            if not asked:  # a second signal must not cut short the end of the processes
                asked.append(number)
                task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop, number)

    async def run(job: Job) -> None:
        nonlocal left
        if job.needs in tasks:
            await tasks[job.needs]
        if job.needs in failed:
            failed[job.name] = f"{job.needs} failed"
            left -= 1
            return
        async with slots:
            if reason := await _run_job(job, folder / f"{job.name}.log", program):
                failed[job.name] = reason
        left -= 1
        progress.advance(job.updates)
        tqdm.write(f"{job.name}: {reason or 'done'}")
        progress.log({"jobs left": left})

    with Progress("study", sum(job.updates for job in jobs), 0, "update", bool(jobs)) as progress:
        for job in jobs:  # a needed job comes before those that need it
            tasks[job.name] = asyncio.create_task(run(job))
        await asyncio.gather(*tasks.values())
    return failed


async def _run_job(job: Job, path: Path, program: Sequence[str]) -> str:
    """Run the commands of `job` one after another, each in a separate process, with one log; returns the reason if one
    fails: the error in the log, or its last line. A cancelled job asks its process to stop, and waits for it."""
    library = os.pathsep.join((str(Path(icrl.__file__).parents[1]), os.environ.get("PYTHONPATH", "")))
    environment = os.environ | {"PYTHONPATH": library.rstrip(os.pathsep), "ICRL_ENDS_WITH_LAUNCHER": "1"}
    with path.open("w") as log:
        for command in job.commands:
            print(f"$ icrl {shlex.join(command)}", file=log, flush=True)
            process = await asyncio.create_subprocess_exec(*program, *command, stdout=log, stderr=log, env=environment)
            try:
                code = await process.wait()
            finally:
                if process.returncode is None:
                    process.terminate()
                    await asyncio.wait([asyncio.create_task(process.wait())], timeout=PATIENCE)
                if process.returncode is None:
                    process.kill()
                    await process.wait()
            if code:
                lines = [line.strip() for line in path.read_text(errors="replace").splitlines() if line.strip()]
                errors = [line for line in lines if line.startswith("error: ")]
                return f"{(errors or lines)[-1]} (exit code {code}, {path})"
    return ""


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
