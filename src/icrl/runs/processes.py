"""Jobs, which an extension runs in other processes, and progress bars."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any, TextIO, TypeVar

from icrl.config.modules import extra_module

Result = TypeVar("Result")
_LINES = 10  # above a bar; the curves of a run have all points


Job = tuple[str, Callable[[], Result]]  # its name, and what makes its result
Tell = Callable[[str, Result], str]  # from name and result of a job, words for a progress bar


class Pool:
    """Place where jobs run: here this process, one after the other; an extension has other processes. Jobs and results
    must be picklable, exceptions are those of the jobs."""

    def results(
        self, jobs: Sequence[Job[Result]], width: int, progress: Progress, tell: Tell[Result]
    ) -> list[tuple[str, Result]]:
        """Names and results of independent `jobs`, of which `width` may run at a time."""
        results = list[tuple[str, Result]]()
        for name, job in jobs:
            results.append((name, job()))
            progress.advance()
            progress.tell(tell(*results[-1]))
        return results

    def begun(self, job: Callable[[], Result], what: str) -> AbstractContextManager[Callable[[], Result]]:
        """Context beside which a `job`, "doing something" in words, may run; its function waits for the result."""
        return nullcontext(job)


POOLS = [Pool()]  # extensions append theirs; the last one counts


def in_parallel(
    jobs: Sequence[Job[Result]], width: int, title: str, tell: Tell[Result] = lambda *_: ""
) -> list[tuple[str, Result]]:
    """Names and results of independent `jobs`, `width` at a time, with a progress bar; see `Pool`. `tell` takes name
    and result as they arrive, and returns words for the bar."""
    with Progress(title, len(jobs), 0, "job") as progress:
        return POOLS[-1].results(jobs, width, progress, tell)


def progress_bar(*iterable: Any, **options: Any) -> Any:
    """Progress bar of tqdm, which acting does without. It is drawn on a terminal. Elsewhere, as in a log file or a
    notebook, it only counts, and log lines take its place."""
    drawn = sys.stderr if sys.stderr.isatty() else SimpleNamespace(write=len, flush=int)
    return extra_module("tqdm", "a progress bar").tqdm(*iterable, file=drawn, **options)


class Progress(AbstractContextManager["Progress"]):
    """Progress bar and, if it is `shown`, log lines: share done, what is learned, throughput, time left."""

    def __init__(self, label: str, total: int, done: int, unit: str, shown: bool = True) -> None:
        bar = {"desc": label, "unit": unit, "unit_scale": True, "dynamic_ncols": True}
        self._bar = progress_bar(total=total, initial=done, disable=not shown, **bar)
        self._lines = done * _LINES // max(total, 1)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._bar.close()

    def refresh(self) -> None:
        self._bar.refresh()

    def advance(self, amount: int = 1) -> None:
        self._bar.update(amount)

    def tell(self, learned: str) -> None:
        """Show words behind the bar, and write one of the ten log lines of the whole if it is due."""
        self._bar.set_postfix_str(learned, refresh=False)
        before, self._lines = self._lines, self._bar.n * _LINES // self._bar.total
        if self._lines > before and self._bar.total > 1:
            self.log(learned)

    def log(self, learned: str) -> None:
        """Write one line above the bar."""
        if (bar := self._bar).disable:
            return
        about = bar.format_dict
        rate = (bar.n - bar.initial) / max(about["elapsed"], 1e-9)
        left = f"{(bar.total - bar.n) / rate:.0f} s left" if rate else "starting"
        bar.write(f"{about['prefix']}  {bar.n / bar.total:4.0%}  {learned}  {rate:,.4g} {bar.unit}/s  {left}")


def say(line: str, file: TextIO | None = None) -> None:
    """Print a line to standard output or `file`, above progress bars, if there are any."""
    if library := sys.modules.get("tqdm"):
        library.tqdm.write(line, file=file)
    else:
        print(line, file=file)
