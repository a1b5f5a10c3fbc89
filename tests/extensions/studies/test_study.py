"""A study runs all of its runs, stops and continues like one of them, and names those that failed."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from harness import TINY

from icrl import extensions
from icrl.app.compose import compose_config
from icrl.app.root import Config
from icrl.contracts import ConfigError, PipelineError
from icrl.extensions.scaling.units import Job
from icrl.extensions.studies.plan import plan
from icrl.extensions.studies.programs.study import main
from icrl.runs.files import read_json

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
    with pytest.raises(ConfigError, match=r"study\.variants, one: trainer\.mini_batch_size=4 must be a multiple of 3 "):
        plan(options(finished, "launch.num_processes=3", "trainer.gradient_accumulation_steps=1"))
