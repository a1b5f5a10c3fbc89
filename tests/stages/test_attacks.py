"""Programs that are killed at random moments, start twice at once, or find the disk full or few files allowed: the same
command then ends with the results of a run that nothing disturbed, and no half file and no process is left."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from harness import TINY, Outcome, ended, results_of
from kin import all_gone, family

from icrl.config.paths import PROJECT

pytestmark = [pytest.mark.long, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]
NUM_KILLS = int(os.environ.get("ICRL_KILLS", "1"))  # of each program by each signal; 20 before a release
SHARDS = ("shard.count=2", "launch.num_workers=2", "source.evaluate=false", "evaluation.checkpoint=last")


class Program(NamedTuple):
    """Command of a program, the file that says that its work has begun, and folders of the finished run: those that it
    needs."""

    options: Sequence[str]
    begun: str
    needs: Sequence[str] = ()


PROGRAMS = {
    "evaluate": Program((), "logs/tiny/evaluation/.lock", ("histories", "logs/tiny/gpt")),
    "pipeline": Program(("source.videos_per_task=1",), "histories/tiny/.lock"),
    "train_agents": Program(SHARDS, "histories/tiny/.lock"),
    "export_model": Program((), "logs/tiny/export/model.safetensors", ("logs/tiny/gpt",)),
    "export_histories": Program(("format=txt",), "histories/tiny/export/.lock", ("histories",)),
    "train_players": Program(("players=tiny", "device=cpu", "training.num_updates=40"), "logs/tiny/players/.lock"),
}


def start(name: str, root: Path, setting: str = "") -> subprocess.Popen[str]:
    """Start a program in a process of its own, after the statements of `setting`."""
    preset = () if name == "train_players" else TINY
    begin = f"import sys; sys.argv[1:1] = ['{name}']; {setting}\nfrom icrl.__main__ import main\nmain()"
    return subprocess.Popen(
        [sys.executable, "-c", begin, *preset, f"root={root}", *PROGRAMS[name].options],
        cwd=PROJECT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def prepared(name: str, finished: Path, root: Path) -> Path:
    for folder in PROGRAMS[name].needs:
        shutil.copytree(finished / folder, root / folder, ignore=shutil.ignore_patterns("export", ".lock"))
    return root


@pytest.fixture(scope="module")
def undisturbed(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict]:
    """Results of each program by its name, made when they are needed."""

    class Results(dict):
        def __missing__(self, name: str) -> dict:
            root = prepared(name, finished, tmp_path_factory.mktemp(name))
            outcome = ended(start(name, root))
            assert outcome.code == 0, outcome
            self[name] = results_of(root)
            return self[name]

    return Results()


def check_end(name: str, root: Path, undisturbed: dict[str, dict]) -> None:
    """The same command ends well, with the results of an undisturbed run."""
    outcome = ended(start(name, root))
    assert outcome.code == 0 and "Traceback" not in outcome.err, outcome
    found, expected = results_of(root), undisturbed[name]
    assert found.keys() == expected.keys()
    assert not [part for part in expected if found[part] != expected[part] and not part.endswith(".log")]


def check_refusal(outcome: Outcome) -> None:
    assert outcome.code == 2 and "error: " in outcome.err and "Traceback" not in outcome.err, outcome


@pytest.mark.timeout(900)
@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("name", PROGRAMS)
def test_killed_at_random_moments(finished, undisturbed, tmp_path, name, by):
    root = prepared(name, finished, tmp_path / "root")
    for _ in range(NUM_KILLS):
        mark = root / PROGRAMS[name].begun
        mark.unlink(missing_ok=True)
        process = start(name, root)
        while not mark.exists() and process.poll() is None:
            time.sleep(0.005)
        time.sleep(random.choice([0.02, 0.2, 3]) * random.random())
        started = family(process.pid)
        process.send_signal(by)
        outcome = ended(process)
        assert outcome.code in {0, -by, 143 if by == signal.SIGTERM else -by}, outcome
        assert "Traceback" not in outcome.err and all_gone(started), outcome
    check_end(name, root, undisturbed)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", PROGRAMS)
def test_two_at_once(finished, undisturbed, tmp_path, name):
    """One of them works; the other says so, or finds the work done."""
    root = prepared(name, finished, tmp_path / "root")
    outcomes = [ended(process) for process in [start(name, root) for _ in range(2)]]
    assert 0 in [outcome.code for outcome in outcomes], outcomes
    for outcome in outcomes:
        if outcome.code:
            check_refusal(outcome)
            assert "another run is writing to" in outcome.err, outcome
    check_end(name, root, undisturbed)


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


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "setting",
    [
        pytest.param(FULL.format(number=0), id="full"),
        pytest.param(FULL.format(number=7), id="full later"),
        pytest.param(SMALL.format(number=1000), id="small files"),
        pytest.param(FEW.format(number=20), id="few files"),
    ],
)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_system_that_refuses(finished, undisturbed, tmp_path, name, setting):
    root = prepared(name, finished, tmp_path / "root")
    outcome = ended(start(name, root, setting))
    if outcome.code:
        check_refusal(outcome)
    check_end(name, root, undisturbed)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_clock_that_was_set_back(finished, undisturbed, tmp_path, name):
    root = prepared(name, finished, tmp_path / "root")
    process = start(name, root)
    while not (root / PROGRAMS[name].begun).exists() and process.poll() is None:
        time.sleep(0.005)
    time.sleep(1)
    process.kill()
    ended(process)
    outcome = ended(start(name, root, BACK))
    assert outcome.code == 0 and "Traceback" not in outcome.err, outcome
    check_end(name, root, undisturbed)
