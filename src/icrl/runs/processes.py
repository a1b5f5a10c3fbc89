"""Child processes that ignore signals and end with their parent, and progress bars.

A signal often reaches a whole process group. Only the training process handles it, and then ends its children.
"""

from __future__ import annotations

import fcntl
import os
import pickle
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, ProcessPoolExecutor
from concurrent.futures import wait as wait_for
from contextlib import AbstractContextManager, contextmanager, suppress
from multiprocessing import active_children, get_all_start_methods, get_context, parent_process, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from types import SimpleNamespace
from typing import Any, TextIO, TypeVar

import torch

from icrl.config.modules import extra_module, load_again, loaded
from icrl.contracts import PipelineError

Result = TypeVar("Result")
_START_METHOD = "forkserver" if "forkserver" in get_all_start_methods() else "spawn"
_SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGUSR2}
_TICK = 1.0  # seconds after which a bar is drawn again
_LINES = 10  # above a bar; the curves of a run have all points
_EXIT = 10.0  # seconds in which a process exits, which takes time at the lowest priority


@contextmanager
def without_signals() -> Iterator[None]:
    """Context in which processes start with signals ignored, without a gap. Their own children inherit this."""
    resource_tracker.ensure_running()  # start it first, because this unblocks SIGINT and SIGTERM
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # inherited
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def killed_at_the_end(processes: Iterable[BaseProcess]) -> Callable[[], object]:
    """Function that kills `processes`; it also runs at the end of the program, where multiprocessing would send them
    a SIGTERM, which they ignore, and wait for ever."""
    kept = list(processes)
    return Finalize(None, lambda: [process.kill() for process in kept], exitpriority=0)


class Worker:
    """Process that calls a picklable `function` on one value after another, at the lowest priority if it is `idle`. It
    ignores signals, and ends with its parent or after an exception."""

    def __init__(self, function: Callable[[Any], Any], *, idle: bool = True) -> None:
        """torch's threads may hold locks when this process is forked, so a server without threads starts the other."""
        context: Any = get_context(_START_METHOD)
        self._connection, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(target=_serve, args=(theirs, function, idle, loaded()), daemon=True)
        with without_signals():
            self.process.start()
        self._kill = killed_at_the_end([self.process])
        theirs.close()

    def give(self, value: Any) -> None:
        with suppress(OSError):  # the process is dead: `answer` raises
            self._connection.send(value)

    def answer(self, patience: float) -> Any:
        """Result, or traceback of an exception; None if neither arrives within `patience` seconds. Raises `EOFError` or
        `OSError` if the process is dead."""
        wait([self._connection, self.process.sentinel], patience)
        if self._connection.poll():
            return self._connection.recv()
        if self.process.exitcode is not None:
            raise EOFError
        return None

    def end(self, patience: float = 0.0) -> int | None:
        """Kill the process if it does not end by itself within `patience` seconds; returns its exit code."""
        self.process.join(patience)
        self._kill()
        self.process.join(_EXIT)
        self._connection.close()
        return self.process.exitcode


def end_with_parent() -> None:
    """End this process as soon as the one that asked multiprocessing for it ends for any reason, or at once if this has
    happened. On Linux the kernel does it, also amid a call that holds the interpreter's lock."""
    asker = parent_process()
    assert asker  # or this is no process of multiprocessing
    if sys.platform != "linux":
        threading.Thread(target=_exit_after, args=(asker,), daemon=True).start()
        return
    pipe = asker.sentinel  # closed when that process ends
    fcntl.fcntl(pipe, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(pipe, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(pipe, fcntl.F_SETFL, os.O_ASYNC)
    if not asker.is_alive():
        os._exit(1)


def _exit_after(process: BaseProcess) -> None:
    process.join()
    os._exit(1)


def _serve(connection: Connection, function: Callable[[Any], Any], idle: bool, modules: list[str]) -> None:
    if idle:
        os.nice(19)
    if idle and sys.platform == "linux":  # nice alone would let it finish its time slice while training waits
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    end_with_parent()  # the pipe is read only between two calls
    load_again(modules)
    with suppress(EOFError, ConnectionError):  # the parent is gone
        while True:
            value = connection.recv()
            try:
                answer = function(value)
            except Exception:
                connection.send(traceback.format_exc())
                return  # what the process shares with others ends too, so that none of them waits for it
            connection.send(answer)


def in_parallel(
    jobs: Sequence[tuple[str, Callable[[], Result]]],
    width: int,
    title: str,
    tell: Callable[[str, Result], str] = lambda *_: "",
) -> list[tuple[str, Result]]:
    """Names and results of independent `jobs`, with a progress bar: `width` at a time in processes with one thread
    each, because two threads of one process would wait for each other; if that is 1, in this process. `tell` takes name
    and result as they arrive, and returns words for the bar.

    Jobs and results must be picklable, exceptions are those of the jobs. Raises `PipelineError` if a process dies."""
    with Progress(title, len(jobs), 0, "job") as progress:
        if width > 1:
            return _in_processes(jobs, width, progress, tell)
        results = list[tuple[str, Result]]()
        for name, job in jobs:
            results.append((name, job()))
            progress.advance()
            progress.tell(tell(*results[-1]))
        return results


def _in_processes(
    jobs: Sequence[tuple[str, Callable[[], Result]]], width: int, progress: Progress, tell: Callable[[str, Result], str]
) -> list[tuple[str, Result]]:
    results, names = dict[int, Result](), [name for name, _ in jobs]
    before = active_children()
    with without_signals():
        pool = ProcessPoolExecutor(width, get_context(_START_METHOD), _alone, (loaded(),))
        # Pickled here, tensors travel by value and not in shared memory, which would need its sender alive.
        futures = {pool.submit(_done, pickle.dumps(job)): number for number, (_, job) in enumerate(jobs)}
    kill = killed_at_the_end([process for process in active_children() if process not in before])
    try:
        while len(results) < len(jobs):
            done, _ = wait_for(futures, _TICK, FIRST_COMPLETED)  # not in order: the bar does not wait for a long one
            for future in done:
                number = futures.pop(future)
                results[number] = pickle.loads(future.result())
                progress.advance()
                progress.tell(tell(names[number], results[number]))
            progress.refresh()  # the time that has passed
        return [(name, results[number]) for number, name in enumerate(names)]
    except BrokenExecutor as error:
        raise PipelineError("a worker process died. Run the same command again, or with num_threads=1") from error
    finally:
        kill()
        pool.shutdown(cancel_futures=True)


def _alone(modules: list[str]) -> None:
    end_with_parent()
    load_again(modules)
    torch.set_num_threads(1)


def _done(job: bytes) -> bytes:
    return pickle.dumps(pickle.loads(job)())


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
