"""Comparison of variants: train each one with several seeds through all stages, in parallel, and write a report.

python -m src.study study=NAME [KEY=VALUE ...]      -> logs/<name>/: study.html, table.md, study.png, results.json

All runs get `study.options` and the options of the command line; a variant adds its own. Stages run as separate
commands, so the same command resumes a stopped study without repeating finished stages. Each run
<name>-<variant>-seed<seed> writes its output to logs/<name>/<run>.log and its files to logs/<run>/. Runs are processes
of this machine (launch.num_workers at a time), or of other machines with launch=dask or launch=submitit.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from icrl.contracts import PipelineError
from icrl.extensions.scaling.launch import run_jobs
from icrl.extensions.studies.options import StudiedConfig
from icrl.extensions.studies.plan import plan
from icrl.extensions.studies.report import write_report
from icrl.runs.files import only_writer

OPTIONS = StudiedConfig
LARGE = "launch.num_workers"


def main(options: Sequence[str], run: Callable[..., dict[str, str]] = run_jobs) -> Path:
    """Run the missing parts of the study with the command line `options`; returns the folder with its results."""
    config, rows, jobs = plan(options)
    folder = config.folder("logs")
    with only_writer(folder):
        if failed := run(jobs, config.launch, folder, "study"):
            reasons = "; ".join(f"{name}: {reason}" for name, reason in failed.items())
            raise PipelineError(f"{len(failed)} of {len(jobs)} jobs failed; the same command retries them: {reasons}")
        print(write_report(folder, config, rows))
    print(f"\npage with pictures and all numbers: {folder / 'study.html'}")
    return folder


def start(config: StudiedConfig, options: Sequence[str]) -> None:
    """Run the study with the `options` of the command line, which every run gets."""
    main(options)
