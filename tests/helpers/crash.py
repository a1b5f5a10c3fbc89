"""Stages that a signal ends at one of their dealings with the disk, and what the same command makes of what is left."""

import gc
import itertools
import json
import os
import shutil
import signal
import sys
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from harness import Outcome, blank, results_of, run
from tqdm import tqdm

from icrl.plots import style

# How a stage ends: by itself with a code, or (negative) by the signal where it is not in its loop, or cannot help it.
ENDS = {signal.SIGINT: {130}, signal.SIGTERM: {143, -signal.SIGTERM}, signal.SIGKILL: {-signal.SIGKILL}}


def sweep(stage: str, folder: Path, signals: Sequence[str]) -> dict[str, Any]:
    """For each `SIGNAL:POINT,...` of the signals, how many points there were and what went wrong where the end was not
    that of a run without a crash.

    For each POINT the stage runs in a copy of the folder. Before its POINT-th write reaches the disk it gets SIGNAL,
    and what was written and not synced is lost; then it runs undisturbed. To be called in a process of its own, because
    it forks: a child costs little to start, and so can be killed for real."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDS)  # a process of the tests may begin with signals blocked
    signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell starts in the background ignores it
    _make_cheap()
    undisturbed = shutil.copytree(folder, f"{folder}-undisturbed")
    assert not run(stage, Path(undisturbed)).code  # not in a child, so that the children find all modules imported
    expected = results_of(Path(undisturbed))
    gc.freeze()  # the collector would touch, and so copy, all of this process's memory in each child
    report = {}
    for name, _, points in (text.partition(":") for text in signals):
        failures: dict[int, str] = {}
        for point in map(int, points.split(",")):
            root = Path(shutil.copytree(folder, f"{folder}-{name}-{point}"))
            failure = _crash(stage, root, signal.Signals[name], point, expected)
            shutil.rmtree(root)
            if failure is None:
                break
            failures[point] = failure
        bad = {point: failure for point, failure in failures.items() if failure}
        report[name] = {"points": len(failures), "failures": bad}
    return report


def _make_cheap() -> None:
    """Leave out what takes time and writes nothing of its own: drawing pictures."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    tqdm.monitor_interval = 0  # no thread: it might hold a lock when a child is forked
    style.figure_to_array = blank


def _crash(stage: str, root: Path, by: signal.Signals, point: int, expected: dict[str, Any]) -> str | None:
    """What was wrong with a crash at `point` or with what came of it; empty where nothing was, None where the stage
    came to its end without reaching `point`."""
    status = _in_child(lambda: run(stage, root), lambda: _lose_power(by, point, root))
    if status == 0:
        return None
    if status not in ENDS[by]:
        return f"ended with {status}"
    if status := _in_child(lambda: run(stage, root)):
        return f"went on to end with {status}"
    found = results_of(root)
    names = [name for name in sorted(found.keys() | expected.keys()) if found.get(name) != expected.get(name)]
    return f"differ: {names}" if names else ""


def _lose_power(by: signal.Signals, point: int, root: Path) -> None:
    """Arrange for signal `by` before the `point`-th call that syncs, renames, deletes or reserves; of calls of one kind
    in a row (a column is like the next) only the first two count."""
    calls, recent = itertools.count(), deque(maxlen=2)

    def before(module: Any, name: str, lose: Callable[..., None]) -> None:
        real = getattr(module, name)

        def call(*arguments: Any, **keywords: Any) -> Any:
            counts = list(recent) != [name, name]
            recent.append(name)
            if counts and next(calls) == point:
                if by != signal.SIGTERM:  # which is answered later, when all is written
                    lose(*arguments)
                os.kill(os.getpid(), by)
            return real(*arguments, **keywords)

        setattr(module, name, call)

    def half_of_file(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if path.is_file():
            os.truncate(path, path.stat().st_size // 2)

    def uncommitted_steps(column: np.memmap[Any, Any]) -> None:
        committed = min(json.loads(path.read_text())["committed"] for path in root.glob("histories/*/manifest.json"))
        column[:, committed:] = 255

    before(os, "fsync", half_of_file)
    before(np.memmap, "flush", uncommitted_steps)
    for name in ("replace", "unlink", "posix_fallocate"):
        before(os, name, lambda *_, **__: None)  # all that came before is synced


def _in_child(work: Callable[[], Outcome], prepare: Callable[[], None] = lambda: None) -> int:
    """Do `work` in a child; returns its code, or minus the signal that ended it."""
    child = os.fork()
    if not child:
        prepare()
        outcome = work()
        if outcome.code not in (0, 130, 143):
            sys.stderr.write(outcome.err)
            sys.stderr.flush()
        os._exit(outcome.code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
