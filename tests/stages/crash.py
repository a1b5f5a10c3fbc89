"""End a stage with a signal at each of its dealings with the disk in turn, and see what the same command makes of it.

python tests/stages/crash.py STAGE SIGNAL FOLDER [POINT ...]

Each POINT (every one there is, where none is given) gets a copy of FOLDER: there the stage is ended before its POINT-th
write reaches the disk, what was written and not synced is lost, and then the stage runs undisturbed. Prints as JSON how
many points there were and, for each that did not end as a run without crash does, what went wrong. A process of its own,
because it forks: a child costs nothing to start, and so can be killed for real.
"""

import itertools
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from harness import TINY, Outcome, results_of, run
from tqdm import tqdm

from src import runtime
from src.config import load_config
from src.evaluation import plots

INTERRUPTED = {signal.SIGINT: 130}  # how the stage itself ends; by other signals it is ended


def main() -> None:
    stage, signal_name, folder, *chosen = sys.argv[1:]
    by = signal.Signals[signal_name]
    tqdm.monitor_interval = 0  # no thread: it might hold a lock when a child is forked
    plots.DPI = 20
    config = load_config(TINY)
    runtime.load_config = lambda arguments: replace(config, root=dict(a.split("=", 1) for a in arguments)["root"])
    undisturbed = _copy(folder, "undisturbed")
    assert not run(stage, undisturbed).code  # here and not in a child, so that all imports are done before the first
    expected = results_of(undisturbed)
    failures: dict[int, str] = {}
    num_points = 0
    for point in map(int, chosen) if chosen else itertools.count():
        root = _copy(folder, str(point))
        status = _in_child(lambda: run(stage, root), lambda: lose_power(by, point, root))
        if status == 0:
            break  # there were not so many points
        num_points += 1
        if status != INTERRUPTED.get(by, -by):
            failures[point] = f"ended with {status}"
        elif status := _in_child(lambda: run(stage, root)):
            failures[point] = f"went on to end with {status}"
        elif (found := results_of(root)) != expected:
            names = sorted(found.keys() | expected.keys())
            failures[point] = f"differ: {[name for name in names if found.get(name) != expected.get(name)]}"
        shutil.rmtree(root)
    print(json.dumps({"points": num_points, "failures": failures}))


def _copy(folder: str, name: str) -> Path:
    return Path(shutil.copytree(folder, f"{folder}-{name}"))


def lose_power(by: signal.Signals, point: int, root: Path) -> None:
    """Arrange for signal `by` before the `point`-th call that syncs, renames, deletes or reserves."""
    calls = itertools.count()

    def before(lose: Callable[..., None], module: Any, name: str) -> None:
        real = getattr(module, name)

        def call(*arguments: Any, **keywords: Any) -> Any:
            if next(calls) == point:
                lose(*arguments)
                os.kill(os.getpid(), by)
            return real(*arguments, **keywords)

        setattr(module, name, call)

    def nothing(*_: Any) -> None:
        """What is synced stays."""

    def half_of_file(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if path.is_file():
            os.truncate(path, path.stat().st_size // 2)

    def uncommitted_steps(column: np.memmap[Any, Any]) -> None:
        committed = min(json.loads(path.read_text())["committed"] for path in root.glob("histories/*/manifest.json"))
        column[:, committed:] = 255

    before(half_of_file, os, "fsync")
    before(uncommitted_steps, np.memmap, "flush")
    for name in ("replace", "unlink", "posix_fallocate"):
        before(nothing, os, name)


def _in_child(work: Callable[[], Outcome], prepare: Callable[[], None] = lambda: None) -> int:
    """Do `work` in a child; returns its code, or minus the signal that ended it."""
    child = os.fork()
    if not child:
        prepare()
        outcome = work()
        if outcome.code not in (0, *INTERRUPTED.values()):
            print(outcome.err, file=sys.stderr, flush=True)
        os._exit(outcome.code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    main()
