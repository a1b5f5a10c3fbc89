"""Attacks on programs in processes of their own: killed at random moments, started twice at once, with a full disk, few
files, or a clock that was set back. The same command then ends with the results of a run that nothing disturbed."""

import os
import random
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from harness import Outcome, ended, python, results_of
from kin import all_gone, family

NUM_KILLS = int(os.environ.get("ICRL_KILLS", "1"))  # of each program by each signal; 20 before a release
SIGNALS = (signal.SIGKILL, signal.SIGTERM)
FULL = """
import errno, itertools, os
syncs, real = itertools.count(), os.fsync
def fsync(descriptor):
    if next(syncs) >= {number}:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    real(descriptor)
os.fsync = fsync
"""
FEW = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({number}, {number}))"
SMALL = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({number}, {number}))"
BACK = "import time; real = time.time; time.time = lambda: real() - 10**8"
SYSTEMS = {  # that refuse
    "full": FULL.format(number=0),
    "full later": FULL.format(number=7),
    "small files": SMALL.format(number=1000),
    "few files": FEW.format(number=20),
}


class Program(NamedTuple):
    """Command of a program, the file that says that its work has begun, folders of the finished run that it needs, and
    files that say how long it took."""

    name: str
    options: Sequence[str]
    begun: str
    needs: Sequence[str] = ()
    timed: Sequence[str] = ()


def start(program: Program, root: Path, setting: str = "") -> subprocess.Popen[str]:
    """Start a program in a process of its own, after the statements of `setting`."""
    begin = f"import sys; sys.argv[1:1] = ['{program.name}']; {setting}\nfrom icrl.__main__ import main\nmain()"
    return python("-c", begin, *program.options, f"root={root}")


def begun(program: Program, root: Path) -> subprocess.Popen[str]:
    """A program that has begun its work, or has ended."""
    mark = root / program.begun
    mark.unlink(missing_ok=True)
    process = start(program, root)
    while not mark.exists() and process.poll() is None:
        time.sleep(0.005)
    return process


def results(program: Program, root: Path) -> dict[str, Any]:
    """Results of the command, which must end well."""
    outcome = ended(start(program, root))
    assert outcome.code == 0 and "Traceback" not in outcome.err, outcome
    return results_of(root)


def check_end(program: Program, root: Path, expected: dict[str, Any]) -> None:
    """The same command ends well, with the `expected` results."""
    found = results(program, root)
    assert found.keys() == expected.keys()
    compared = [part for part in expected if not part.endswith(".log") and part not in program.timed]
    assert not [part for part in compared if found[part] != expected[part]]


def check_refusal(outcome: Outcome) -> None:
    assert outcome.code == 2 and "error: " in outcome.err and "Traceback" not in outcome.err, outcome


def kill(program: Program, root: Path, by: signal.Signals) -> None:
    for _ in range(NUM_KILLS):
        process = begun(program, root)
        time.sleep(random.choice([0.02, 0.2, 3]) * random.random())
        started = family(process.pid)
        process.send_signal(by)
        outcome = ended(process)
        assert outcome.code in {0, -by, 143 if by == signal.SIGTERM else -by}, outcome
        assert "Traceback" not in outcome.err and all_gone(started), outcome


def start_twice(program: Program, root: Path) -> None:
    """One of them works; the other says so, or finds the work done."""
    outcomes = [ended(process) for process in [start(program, root) for _ in range(2)]]
    assert 0 in [outcome.code for outcome in outcomes], outcomes
    for outcome in outcomes:
        if outcome.code:
            check_refusal(outcome)
            assert "another run is writing to" in outcome.err, outcome


def start_in(program: Program, root: Path, setting: str) -> None:
    """In a system that refuses."""
    outcome = ended(start(program, root, setting))
    if outcome.code:
        check_refusal(outcome)


def set_clock_back(program: Program, root: Path) -> None:
    process = begun(program, root)
    time.sleep(1)
    process.kill()
    ended(process)
    outcome = ended(start(program, root, BACK))
    assert outcome.code == 0 and "Traceback" not in outcome.err, outcome
