"""A study runs all of its runs, stops and continues like one of them, and names those that failed."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from harness import TINY
from kin import all_gone, family

from icrl import extensions
from icrl.app.compose import compose_config
from icrl.app.root import Config
from icrl.contracts import ConfigError, PipelineError
from icrl.extensions.scaling.units import Job
from icrl.extensions.studies.plan import plan
from icrl.extensions.studies.programs.study import main
from icrl.runs.files import PROJECT, read_json

SMALL = [option for option in TINY if not option.startswith(("name=", "num_threads="))]
SMALL += ["name=mine", "trainer.evaluate=false", "evaluation.checkpoint=last", "source.evaluate=false"]
SMALL += ["device.amp_dtype=none"]


def options(root: Path, *more: str) -> list[str]:
    variants = "study.variants=[{label: one, set: []}, {label: wide, set: ['model.ff_dim=24']}]"
    return [*SMALL, f"root={root}", "study.seeds=[0, 1]", variants, *more]


def run_here(jobs: Sequence[Job], *_: Any) -> dict[str, str]:
    """Run the jobs in this process, which saves the start of others."""
    for program, *given in (command for job in jobs for command in job.commands):
        module = import_module(extensions.programs().get(program, f"icrl.programs.{program}"))
        module.main(compose_config(getattr(module, "OPTIONS", Config), given))
    return {}


def never(jobs: Sequence[Job], *_: Any) -> dict[str, str]:
    assert not jobs, "finished work is repeated"
    return {}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Root of a study that was not interrupted."""
    root = tmp_path_factory.mktemp("finished")
    main(options(root), run_here)
    return root


def test_all_runs_are_there_and_reported(finished, capsys):
    runs = {f"mine-{variant}-seed{seed}" for variant in ("one", "wide") for seed in (0, 1)}
    assert {path.name for path in (finished / "logs").iterdir() if "histories" not in path.name} == {"mine", *runs}
    assert len(list((finished / "histories").iterdir())) == 2, "a store for each seed"
    folder = finished / "logs" / "mine"
    rows = read_json(folder / "results.json")["rows"]
    assert [(row["variant"], row["updates"]) for row in rows] == [("one", 6), ("wide", 6)]
    assert {run for row in rows for run in row["runs"]} == runs
    for row in rows:
        finals = [read_json(finished / "logs" / run / "evaluation/results.json")["final"] for run in row["runs"]]
        means = [final["held_out"]["returns"]["mean"] for final in finals]
        assert row["found"]["final"]["held_out"]["returns"]["mean"] == pytest.approx(sum(means) / 2)
        assert row["training_seconds"] > 0
    assert (folder / "table.md").read_text().count("\n") == 4 and (folder / "study.png").exists()
    assert main(options(finished), never) == folder
    assert (folder / "study.html").exists()
    told = capsys.readouterr().out
    assert "; undecided with 2 seeds" in told and "; 2 seeds are too few: give 3 or more." in told


def test_refused_and_failed_runs_are_named(finished):
    before = (finished / "logs/mine/results.json").stat().st_mtime_ns
    with pytest.raises(ConfigError, match=r"study.variants, one: .*model\.ff_dim=16.* has 32"):
        main(options(finished, "model.ff_dim=32"), never)
    with pytest.raises(PipelineError, match=r"1 of 0 jobs failed.*mine-one-seed0: error: no \(exit"):
        main(options(finished), lambda *_: {"mine-one-seed0": "error: no (exit code 2, logs/x.log)"})
    assert (finished / "logs/mine/results.json").stat().st_mtime_ns == before, "there is no report if a run is missing"


@pytest.mark.long
def test_killed_study(finished, tmp_path):
    """Its processes end with it; the same command gives the numbers of an undisturbed study."""
    few = options(tmp_path, "study.seeds=[1]", "study.variants=[{label: one, set: []}]")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"OMP_NUM_THREADS": "1"}
    with (tmp_path / "output").open("w") as log:
        command = [sys.executable, "-m", "src.study", *few]
        process = subprocess.Popen(command, cwd=PROJECT, env=environment, stdout=log, stderr=log)
    run, evaluation = "logs/mine-one-seed1", "logs/mine-one-seed1/evaluation/results.json"
    wait_until(lambda: (tmp_path / run / "gpt/run.json").exists() or process.poll() is not None)
    children = family(process.pid)
    process.kill()
    process.wait()
    assert children and all_gone(children)
    assert not (tmp_path / evaluation).exists()
    assert len(read_json(main(few, run_here) / "results.json")["rows"]) == 1
    assert read_json(tmp_path / evaluation)["curves"] == read_json(finished / evaluation)["curves"]


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_processes_that_cannot_share_a_batch_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"study\.variants, one: trainer\.mini_batch_size=4 must be a multiple of 3 "):
        plan(options(tmp_path, "launch.num_processes=3", "trainer.gradient_accumulation_steps=1"))


@pytest.mark.skipif("offline_rl" not in extensions.NAMES, reason="the programs are an extension")
@pytest.mark.long
def test_policies_share_what_is_trained_for_them(tmp_path):
    """A model, the same guided by a critic, the policy extracted from the critic, and the critic alone."""
    guided, critic = "'policy.advantage_scale=2'", "'policy.model=critic'"
    policies = {"plain": "", "guided": guided, "extracted": "'policy.model=awr'", "alone": f"{critic}, {guided}"}
    variants = ", ".join(f"{{label: {label}, set: [{changes}]}}" for label, changes in policies.items())
    asked = options(tmp_path, "study.seeds=[0]", f"study.variants=[{variants}]")
    rows = read_json(main(asked, run_here) / "results.json")["rows"]
    assert [row["updates"] for row in rows] == [6, 12, 12, 6]
    seconds = {row["variant"]: row["training_seconds"] for row in rows}
    assert seconds["guided"] == pytest.approx(seconds["plain"] + seconds["alone"])
    assert seconds["extracted"] > seconds["alone"] > 0
    trained = [path.parent for path in tmp_path.glob("logs/*/*/finished.json") if path.parent.name != "source"]
    assert set(trained) == {tmp_path / "logs" / "mine-plain-seed0" / part for part in ("gpt", "ilql", "awr")}
    main(asked, never)
    for option in ("critic.expectile=0.6", "encoder.num_layers=2", "awr.inverse_temperature=3.0"):
        with pytest.raises(ConfigError, match=re.escape(option.partition("=")[0])):
            main([*asked, option], never)
