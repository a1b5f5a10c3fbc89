"""A study runs all of its runs, whatever ends it, and says which of them failed."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from harness import TINY

from icrl.config.paths import PROJECT
from icrl.contracts import ConfigError, PipelineError, Stopped
from icrl.programs import study
from icrl.programs.study import main, run_commands, run_jobs
from icrl.runs.files import read_json
from icrl.studies.plan import Job

SMALL = [option for option in TINY if not option.startswith(("name=", "num_threads="))]
SMALL += ["name=mine", "trainer.evaluate=false", "evaluation.checkpoint=last", "source.evaluate=false"]
SMALL += ["evaluation.temperatures=[]", "evaluation.ablations=false", "device.amp_dtype=none"]
VARIANTS = "study.variants=[{label: one, set: []}, {label: wide, set: ['model.ff_dim=24']}]"

pytestmark = pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")  # stages run in this process


def options(root: Path, *more: str) -> list[str]:
    return [*SMALL, f"root={root}", "study.seeds=[0, 1]", VARIANTS, *more]


def here(jobs: Sequence[Job], *_: Any) -> dict[str, str]:
    """Do the jobs in this process: none has to start."""
    for job in jobs:
        run_commands(job.commands)
    return {}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of a study that ran in one go."""
    root = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study, "run_jobs", here)
        patch.setattr(sys, "argv", ["study"])
        main(options(root))
    return root


def files_of(root: Path) -> dict[str, int]:
    """When the files of runs were last changed."""
    paths = [path for path in root.rglob("*") if path.is_file() and path.parent.name != "mine" and path.name != ".lock"]
    return {str(path): path.stat().st_mtime_ns for path in paths}


def test_whoever_plays_is_reported_with_all_that_was_trained_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model, the same guided by a critic, the policy extracted from that, and the critic alone."""
    guided, critic = "'policy.advantage_scale=2'", "'policy.model=critic'"
    players = {"plain": "", "guided": guided, "extracted": "'policy.model=awr'", "alone": f"{critic}, {guided}"}
    variants = ", ".join(f"{{label: {label}, set: [{changes}]}}" for label, changes in players.items())
    asked = options(tmp_path, "study.seeds=[0]", f"study.variants=[{variants}]")
    monkeypatch.setattr(study, "run_jobs", here)
    monkeypatch.setattr(sys, "argv", ["study"])
    rows = read_json(main(asked) / "results.json")["rows"]
    assert [row["updates"] for row in rows] == [6, 12, 12, 6]
    seconds = {row["variant"]: row["training_seconds"] for row in rows}
    assert seconds["guided"] == pytest.approx(seconds["plain"] + seconds["alone"])
    assert seconds["extracted"] > seconds["alone"] > 0
    trained = [path.parent for path in tmp_path.glob("logs/*/*/finished.json") if path.parent.name != "source"]
    assert set(trained) == {tmp_path / "logs" / "mine-plain-seed0" / part for part in ("gpt", "ilql", "awr")}
    before = files_of(tmp_path)
    main(asked)
    assert files_of(tmp_path) == before, "what is done is done again"


def test_all_runs_are_there_and_reported(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = {f"mine-{variant}-seed{seed}" for variant in ("one", "wide") for seed in (0, 1)}
    assert {path.name for path in (finished / "logs").iterdir() if "histories" not in path.name} == {"mine", *runs}
    assert len(list((finished / "histories").iterdir())) == 2, "a store for each seed"
    folder = finished / "logs" / "mine"
    results = read_json(folder / "results.json")
    assert [(row["variant"], row["updates"]) for row in results["rows"]] == [("one", 6), ("wide", 6)]
    assert {run for row in results["rows"] for run in row["runs"]} == runs
    for row in results["rows"]:
        finals = [read_json(finished / "logs" / run / "evaluation/results.json")["final"] for run in row["runs"]]
        means = [final["held_out"]["returns"]["mean"] for final in finals]
        assert row["found"]["final"]["held_out"]["returns"]["mean"] == pytest.approx(sum(means) / 2)
        assert row["training_seconds"] > 0
    assert (folder / "table.md").read_text().count("\n") == 4 and (folder / "study.png").exists()
    before = files_of(finished)
    assert main(options(finished)) == folder
    assert files_of(finished) == before, "what is done is done again"
    assert (folder / "table.md").read_text() in capsys.readouterr().out


def test_runs_that_were_made_with_other_options_are_refused(finished: Path) -> None:
    with pytest.raises(ConfigError, match=r"study.variants, one: .*model\.ff_dim=16.* says 32"):
        main(options(finished, "model.ff_dim=32"))


def test_killed_amid_its_runs(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it started ends with it; the same command comes to the numbers of an undisturbed run."""
    few = options(tmp_path, "study.seeds=[1]", "study.variants=[{label: one, set: []}]")
    process = subprocess.Popen(
        [sys.executable, "-m", "src.study", *few],
        cwd=PROJECT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    run = tmp_path / "logs" / "mine-one-seed1"
    wait_until(lambda: (run / "gpt").exists() or process.poll() is not None)
    (child,) = children_of(process.pid)
    process.kill()
    process.wait()
    wait_until(lambda: not alive(child))
    assert not (run / "evaluation" / "results.json").exists()
    monkeypatch.setattr(study, "run_jobs", here)
    monkeypatch.setattr(sys, "argv", ["study"])
    results = read_json(main(few) / "results.json")
    again, undisturbed = (
        read_json(root / "logs" / "mine-one-seed1" / "evaluation" / "results.json")["curves"]
        for root in (tmp_path, finished)
    )
    assert again == undisturbed and len(results["rows"]) == 1
    (row,) = results["rows"]
    assert row["found"]["final"]["held_out"]["success"]["mean"] == pytest.approx(
        sum(undisturbed["model, held-out tasks"]["success"]["mean"][-1:])
    )


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for modules that jobs may run."""
    monkeypatch.syspath_prepend(tmp_path)
    sources = {
        "good": "Path(sys.argv[1]).write_text(' '.join(sys.argv))",
        "bad": "print('error: no such world')\nprint('bye')\nsys.exit(2)",
        "sleepy": "Path(sys.argv[1]).touch()\ntime.sleep(20)\nPath(sys.argv[1]).write_text('awake')",
    }
    for name, source in sources.items():
        (tmp_path / f"{name}.py").write_text(f"import sys, time\nfrom pathlib import Path\n{source}\n")
    return tmp_path


def test_a_job_that_fails_takes_with_it_only_those_that_need_it(
    modules: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = [
        Job("first", [["good", str(modules / "first")]], "", 0),
        Job("broken", [["bad"], ["good", str(modules / "after-broken")]], "", 5),
        Job("second", [["good", str(modules / "second"), "a b"]], "first", 5),
        Job("needy", [["good", str(modules / "needy")]], "broken", 5),
    ]
    failed = run_jobs(jobs, 2, modules)
    assert failed == {
        "broken": f"error: no such world (exit code 2, {modules / 'broken.log'})",
        "needy": "broken failed",
    }
    assert (modules / "second").read_text() == f"good {modules / 'second'} a b"
    assert not (modules / "needy").exists() and not (modules / "after-broken").exists()
    assert (modules / "second.log").read_text() == f"$ python -m good {modules / 'second'} 'a b'\n"
    shown = capsys.readouterr()
    assert "broken: error: no such world" in shown.out and "second: done" in shown.out


def test_a_study_names_what_failed(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And reports nothing, for something is missing."""
    monkeypatch.setattr(study, "run_jobs", lambda *_: {"mine-one-seed0": "error: no (exit code 2, logs/x.log)"})
    monkeypatch.setattr(study, "write_report", lambda *_: pytest.fail("it reports"))
    with pytest.raises(PipelineError, match=r"1 of 0 jobs failed.*mine-one-seed0: error: no \(exit"):
        main(options(finished))


@pytest.mark.parametrize(("number", "error"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Stopped)])
def test_a_signal_ends_the_jobs_at_once(modules: Path, number: int, error: type[BaseException]) -> None:
    mark, before = modules / "asleep", signal.getsignal(number)

    def send() -> None:
        wait_until(mark.exists)
        os.kill(os.getpid(), number)

    sender = threading.Thread(target=send)
    sender.start()
    with pytest.raises(error):
        run_jobs([Job("long", [["sleepy", str(mark)]], "", 1)], 1, modules)
    sender.join()
    assert mark.read_text() == "" and children_of(os.getpid()) == [] and signal.getsignal(number) == before


def children_of(process: int) -> list[int]:
    """Processes that `process` started to work for it."""
    tasks = Path(f"/proc/{process}/task").glob("*/children")
    found = [int(child) for task in tasks for child in task.read_text().split()]
    return [child for child in found if "spawn_main" in Path(f"/proc/{child}/cmdline").read_text()]


def alive(process: int) -> bool:
    status = Path(f"/proc/{process}/status")
    return status.exists() and "State:\tZ" not in status.read_text()


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)
