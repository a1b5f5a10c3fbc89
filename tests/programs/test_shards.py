"""Stage one in shards: through an engine, with a worker that is killed, to the bytes of a run without shards."""

import os
import signal
import threading
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harness import TINY, refusal
from kin import family

from icrl.config.compose import load_config
from icrl.contracts import ConfigError, PipelineError, Rollout
from icrl.programs import _shards, train_agents
from icrl.runs.files import read_json
from icrl.runs.units import Job

SMALL = [*TINY, "env.size=5", "tasks.num_train=16", "source.evaluate=false", "evaluation.checkpoint=last"]
SMALL += ["trainer.evaluate=false"]


def options(root: Path, *more: str) -> list[str]:
    return [*SMALL, f"root={root}", "name=parts", "shard.count=8", *more]


def collected(root: Path, *more: str) -> Path:
    given = options(root, *more)
    return train_agents.main(load_config(given), given)


def run_here(jobs: Sequence[Job], *_: Any) -> dict[str, str]:
    """Run the jobs in this process, which saves the start of others."""
    for _, *given in (command for job in jobs for command in job.commands):
        train_agents.main(load_config(given))
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
def test_eight_shards_on_two_workers_of_dask_of_which_one_is_killed(whole, tmp_path, capsys, monkeypatch):
    if not find_spec("distributed"):
        pytest.skip("distributed is not installed")
    monkeypatch.setattr(os, "environ", os.environ | {"OMP_NUM_THREADS": "1"})
    killed: list[int] = []
    killer = threading.Thread(target=kill_a_worker, args=(tmp_path / "histories/parts", killed))
    killer.start()
    folder = collected(tmp_path, "launch=dask")
    killer.join()
    assert killed
    check_equal(folder, whole)
    shown = capsys.readouterr().out
    assert all(shown.count(f"shard-{index}-of-8: done") == 1 for index in range(8)) and "of 16 training tasks" in shown


def kill_a_worker(histories: Path, killed: list[int]) -> None:
    """Kill the parent of the first process that collects a shard, as soon as the shard has files."""
    end = time.monotonic() + 200
    while not killed and time.monotonic() < end:
        for pid in family(os.getpid()) if [*histories.glob("shard-*/manifest.json")] else ():
            try:
                command, parent = Path(f"/proc/{pid}/cmdline").read_bytes(), Path(f"/proc/{pid}/stat").read_text()
            except OSError:
                continue
            if b"shard.index=" in command and not killed:
                killed.append(int(parent.rpartition(")")[2].split()[1]))
                os.kill(killed[0], signal.SIGKILL)
        time.sleep(0.02)


def test_a_run_goes_on_with_the_shards_that_are_missing(whole, tmp_path, monkeypatch):
    """One shard by its own command, failed ones named, all others by the engine; finished ones are not repeated."""
    train_agents.main(load_config(options(tmp_path, "shard.index=3")))
    asked: list[str] = []

    def fail(jobs: Sequence[Job], *_: Any) -> dict[str, str]:
        asked.extend(job.name for job in jobs)
        return {"shard-0-of-8": "error: no (exit code 2, x.log)"}

    monkeypatch.setattr(_shards, "run_jobs", fail)
    with pytest.raises(PipelineError, match=r"1 of 8 shards failed; .*: shard-0-of-8: error: no"):
        collected(tmp_path)
    assert asked == [f"shard-{index}-of-8" for index in (0, 1, 2, 4, 5, 6, 7)]
    assert not (tmp_path / "histories/parts/manifest.json").exists()
    monkeypatch.setattr(_shards, "run_jobs", run_here)
    check_equal(collected(tmp_path), whole)
    monkeypatch.setattr(_shards, "run_jobs", lambda jobs, *_: {} if not jobs else {"x": "repeated"})
    check_equal(collected(tmp_path), whole)
    found = read_json(tmp_path / "logs/parts/source/finished.json")
    assert found["num_tasks"] == 16 and len(found["unsolved"]) <= 16
    with pytest.raises(ConfigError, match=r"shard-3-of-8 was made with source\.hidden_size=8.* has 16"):
        train_agents.main(load_config(options(tmp_path, "shard.index=3", "source.hidden_size=16")))


def test_shards_are_refused_where_they_cannot_be(whole, tmp_path):
    with pytest.raises(ConfigError, match=r"shard\.count=8: shards are commands of their own"):
        train_agents.main(load_config(options(tmp_path)))
    root = whole.parents[1]
    with pytest.raises(ConfigError, match=r"whole was collected without shards"):
        collected(root, "name=whole")
    asked = refusal("pipeline", tmp_path, "name=parts", "shard.count=8", preset=SMALL)
    assert "shard.count=8: shards are commands of their own" in asked
