"""Stage one in shards: through an engine, with a worker that is killed, to the bytes of a run without shards."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness import TINY, refusal
from kin import killed_parent

from icrl.app.compose import compose_config, load_config
from icrl.contracts import ConfigError, PipelineError, Rollout
from icrl.extensions.scaling.options import ShardedConfig
from icrl.extensions.scaling.programs import train_shards
from icrl.extensions.scaling.units import Job
from icrl.programs import train_agents
from icrl.runs.files import read_json

SMALL = [*TINY, "env.size=5", "tasks.num_train=16", "source.evaluate=false", "evaluation.checkpoint=last"]
SMALL += ["trainer.evaluate=false"]


def options(root: Path, *more: str) -> list[str]:
    return [*SMALL, f"root={root}", "name=parts", "shard.count=8", *more]


def collected(root: Path, *more: str) -> Path:
    given = options(root, *more)
    return train_shards.start(compose_config(ShardedConfig, given), given)


def run_here(jobs: Sequence[Job], *_: Any) -> dict[str, str]:
    """Run the jobs in this process, which saves the start of others."""
    for _, *given in (command for job in jobs for command in job.commands):
        train_shards.start(compose_config(ShardedConfig, given), given)
    return {}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Histories of a run without shards."""
    return train_agents.main(load_config([*SMALL, f"root={tmp_path_factory.mktemp('whole')}", "name=whole"]))


def check_equal(union: Path, whole: Path) -> None:
    """The shards' rows, one after the other, are those of the whole store, and so is the manifest's description."""
    ours, theirs = read_json(union / "manifest.json"), read_json(whole / "manifest.json")
    assert [shard["folder"] for shard in ours["shards"]] == [f"shard-{index}-of-8" for index in range(8)]
    assert ours.keys() - {"shards"} == theirs.keys()
    for key in ("tasks", "rows", "env", "owner", "committed", "complete", "blocks"):
        assert ours[key] == theirs[key], key
    for name in Rollout._fields:
        parts = [np.load(union / shard["folder"] / f"{name}.npy") for shard in ours["shards"]]
        assert [len(part) for part in parts] == [shard["rows"] for shard in ours["shards"]]
        column, expected = np.concatenate(parts), np.load(whole / f"{name}.npy")
        assert column.dtype == expected.dtype and column.tobytes() == expected.tobytes(), name
        assert ours["columns"][name] == theirs["columns"][name] | {"sha256": None}


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("engine", "package"), [("dask", "distributed"), ("submitit", "submitit")])
def test_eight_shards_on_two_workers_of_which_one_is_killed(
    whole: Path, tmp_path: Path, capsys: Any, monkeypatch: Any, engine: str, package: str
) -> None:
    pytest.importorskip(package)
    monkeypatch.setattr(os, "environ", os.environ | {"OMP_NUM_THREADS": "1"})
    shards = tmp_path / "histories/parts"
    with killed_parent(b"shard.index=", lambda: any(shards.glob("shard-*/manifest.json"))):
        folder = collected(tmp_path, f"launch={engine}", "launch.num_workers=2")
    check_equal(folder, whole)
    shown = capsys.readouterr().out
    assert all(shown.count(f"shard-{index}-of-8: done") == 1 for index in range(8)) and "of 16 training tasks" in shown


def test_a_run_goes_on_with_the_shards_that_are_missing(whole, tmp_path, monkeypatch):
    """One shard by its own command, failed ones named, all others by the engine; finished ones are not repeated."""
    collected(tmp_path, "shard.index=3")
    asked: list[str] = []

    def fail(jobs: Sequence[Job], *_: Any) -> dict[str, str]:
        asked.extend(job.name for job in jobs)
        return {"shard-0-of-8": "error: no (exit code 2, x.log)"}

    monkeypatch.setattr(train_shards, "run_jobs", fail)
    with pytest.raises(PipelineError, match=r"1 of 8 shards failed; .*: shard-0-of-8: error: no"):
        collected(tmp_path)
    assert asked == [f"shard-{index}-of-8" for index in (0, 1, 2, 4, 5, 6, 7)]
    assert not (tmp_path / "histories/parts/manifest.json").exists()
    monkeypatch.setattr(train_shards, "run_jobs", run_here)
    check_equal(collected(tmp_path), whole)
    monkeypatch.setattr(train_shards, "run_jobs", lambda jobs, *_: {} if not jobs else {"x": "repeated"})
    check_equal(collected(tmp_path), whole)
    found = read_json(tmp_path / "logs/parts/source/finished.json")
    assert found["num_tasks"] == 16 and len(found["unsolved"]) <= 16
    with pytest.raises(ConfigError, match=r"shard-3-of-8 was made with source\.hidden_size=8.* has 16"):
        collected(tmp_path, "shard.index=3", "source.hidden_size=16")


def test_a_store_without_shards_and_processes_that_share_a_shard_are_refused(whole, tmp_path):
    with pytest.raises(ConfigError, match=r"launch\.num_processes=2: a shard is collected by one process"):
        collected(tmp_path, "launch.num_processes=2")
    with pytest.raises(ConfigError, match=r"whole was collected without shards"):
        collected(whole.parents[1], "name=whole")
    for program in ("train_agents", "pipeline"):
        assert "shard: there is no such option" in refusal(program, tmp_path, "shard.count=8", preset=SMALL)
