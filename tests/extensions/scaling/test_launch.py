"""Engines: every job is done once, though a worker is killed; failures are named; nothing outlives a signal."""

import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from unittest.mock import Mock

import pytest
from kin import is_alive

from icrl.contracts import ConfigError, Stopped
from icrl.extensions.scaling import launch, units
from icrl.extensions.scaling.launch import run_jobs
from icrl.extensions.scaling.options import LAUNCHES, DaskLaunch, LocalLaunch, SubmititLaunch
from icrl.extensions.scaling.units import Job

LOCAL = LocalLaunch()
PACKAGES = {"local": "icrl", "dask": "distributed", "submitit": "submitit"}
PROGRAM = """
import os, signal, sys, time
from pathlib import Path
from unittest.mock import Mock
name, *options = sys.argv[1:]
path = Path(options[0])
if name == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if name == "bad":
    print("error: no such world")
    sys.exit(2)
if name in ("cell", "kills"):
    alive = os.open(f"{path}.alive", os.O_CREAT | os.O_EXCL)  # fails beside another process of the same job
    with open(f"{path}.starts", "a") as starts:
        is_first = not starts.tell()
        print("start", file=starts)
    if name == "kills" and is_first:
        os.kill(os.getpid() if options[1] == "local" else os.getppid(), signal.SIGKILL)
        time.sleep(0.5)  # this process survives its worker for a while
    os.unlink(f"{path}.alive")
    if name == "kills" and is_first:
        sys.exit(0)
text = str(os.getpid()) if name in ("sleepy", "deaf") else " ".join(options)
Path(f"{path}.new").write_text(text)
Path(f"{path}.new").replace(path)
if name in ("sleepy", "deaf"):
    time.sleep(60)
"""


@pytest.fixture
def program(tmp_path: Path) -> tuple[str, str]:
    """Command that stands for `python -m icrl`, with programs of its own."""
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return sys.executable, str(path)


@pytest.mark.parametrize("engine", LAUNCHES)
def test_a_killed_worker_s_job_is_done_again_and_no_other(tmp_path, program, engine, capsys, monkeypatch):
    """Eight jobs, of which one kills its worker: the process itself, Dask's worker or submitit's job."""
    if not find_spec(PACKAGES[engine]):
        pytest.skip(f"{PACKAGES[engine]} is not installed")
    monkeypatch.setattr(os, "environ", os.environ.copy())
    launches = {"local": LOCAL, "dask": DaskLaunch(), "submitit": SubmititLaunch(num_workers=4)}
    paths = [tmp_path / f"cell-{number}" for number in range(8)]
    jobs = [Job(path.name, [["cell", str(path)]], "", 1) for path in paths]
    jobs[5].commands = [["kills", str(paths[5]), engine]]
    jobs[7].needs = jobs[5].name
    if engine == "local":  # the process is the worker, and leaves its mark behind
        mark = Path(f"{paths[5]}.alive")
        threading.Thread(target=lambda: (wait_until(mark.exists), mark.unlink())).start()
    assert run_jobs(jobs, launches[engine], tmp_path, "study", program) == {}
    assert [path.read_text() for path in paths] == [" ".join(job.commands[0][1:]) for job in jobs]
    starts = [Path(f"{path}.starts").read_text().count("start") for path in paths]
    again = {5} if engine != "dask" else {number for number, count in enumerate(starts) if count == 2}
    assert 5 in again and all(count == 1 + (number in again) for number, count in enumerate(starts))
    assert len(again) <= 2  # Dask also repeats a job whose answer was still on its way when the worker died
    shown = capsys.readouterr().out
    assert all(f"{path.name}: done" in shown for path in paths)
    assert engine != "dask" or "dashboard http" in shown


@pytest.mark.parametrize("engine", ["dask", "submitit"])
def test_a_missing_package_is_one_message(tmp_path, monkeypatch, engine):
    monkeypatch.setitem(sys.modules, PACKAGES[engine], None)
    with pytest.raises(ConfigError, match=rf"launch={engine} needs the package .*pip install .*\[{engine}\]"):
        run_jobs([Job("one", [["cell"]], "", 1)], LAUNCHES[engine](), tmp_path, "study")


@pytest.mark.parametrize(
    ("engine", "options", "made"),
    [
        ("dask", {"scheduler": "nonsense"}, {"Client": "missing port"}),
        ("submitit", {"parameters": {"x": 1}}, {"AutoExecutor": "", "update_parameters": "x is unknown"}),
    ],
)
def test_an_engine_that_does_not_start_is_one_message(tmp_path, monkeypatch, engine, options, made):
    """Whatever it raises."""
    wrong = {name: Mock(side_effect=ValueError(said) if said else None) for name, said in made.items()}
    client = Mock(**wrong, **({"AutoExecutor.return_value": Mock(**wrong)} if "update_parameters" in made else {}))
    monkeypatch.setitem(sys.modules, PACKAGES[engine], client)
    ((name, value),) = options.items()
    given = re.escape(f"launch.{name}={value}: launch.name={engine} cannot start with it: ValueError: ")
    with pytest.raises(ConfigError, match=f"^{given}({'|'.join(made.values())})$"):
        run_jobs([Job("one", [["cell"]], "", 1)], LAUNCHES[engine](**options), tmp_path, "study")


def test_a_process_that_is_always_killed_fails(tmp_path, program):
    Path(program[1]).write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n")
    failed = run_jobs([Job("dies", [["x"]], "", 1)], LOCAL, tmp_path, "study", program)
    assert failed == {"dies": f"$ icrl x (exit code -9, {tmp_path / 'dies.log'})"}
    assert (tmp_path / "dies.log").read_text() == units.ATTEMPTS * "$ icrl x\n"


def test_a_worker_that_always_dies_fails_its_job(tmp_path, monkeypatch):
    class Dead:
        def done(self) -> bool:
            return True

        def result(self) -> str:
            raise OSError("no route\nto host")

    submitted = list[Job]()
    engine = launch.contextmanager(lambda *_: iter([(lambda job: submitted.append(job) or Dead(), 0)]))
    monkeypatch.setitem(launch.ENGINES, "local", engine)
    failed = run_jobs([Job("one", [], "", 1)], LOCAL, tmp_path, "study")
    assert failed == {"one": "its worker died: OSError no route to host"} and len(submitted) == units.ATTEMPTS


def test_a_failed_job_fails_only_those_that_need_it(tmp_path, program, capsys):
    first, second, needy, after = (str(tmp_path / name) for name in ("first", "second", "needy", "after-broken"))
    jobs = [
        Job("first", [["good", first]], "", 0),
        Job("broken", [["bad", first], ["good", after]], "", 5),
        Job("second", [["good", f"{second}.1"], ["good", second, "a b"]], "first", 5),
        Job("needy", [["good", needy]], "broken", 5),
    ]
    reason = f"error: no such world (exit code 2, {tmp_path / 'broken.log'})"
    assert run_jobs(jobs, LOCAL, tmp_path, "study", program) == {"broken": reason, "needy": "broken failed"}
    assert Path(second).read_text() == f"{second} a b" and not Path(needy).exists() and not Path(after).exists()
    assert (tmp_path / "second.log").read_text() == f"$ icrl good {second}.1\n$ icrl good {second} 'a b'\n"
    assert "broken: error: no such world" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("number", "error", "job"), [(signal.SIGINT, KeyboardInterrupt, "sleepy"), (signal.SIGTERM, Stopped, "deaf")]
)
def test_a_signal_ends_the_jobs(tmp_path, program, monkeypatch, number, error, job):
    """Also one that does not listen, after a while, and one that waits."""
    monkeypatch.setattr(units, "PATIENCE", 1.0)
    mark, before = tmp_path / "asleep", signal.getsignal(number)
    sender = threading.Thread(target=lambda: (wait_until(mark.exists), os.kill(os.getpid(), number)))
    sender.start()
    jobs = [Job("long", [[job, str(mark)]], "", 1), Job("later", [["good", str(tmp_path / "later")]], "", 1)]
    with pytest.raises(error):
        run_jobs(jobs, LocalLaunch(num_workers=1), tmp_path, "study", program)
    sender.join()
    assert not is_alive(int(mark.read_text())) and not (tmp_path / "later").exists()
    assert signal.getsignal(number) == before


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)
