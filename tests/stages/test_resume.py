"""The same command continues an interrupted stage, and ends with the bits of a run that nothing disturbed."""

import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from harness import STAGES, ended, results_of, start

from src.schema import PROJECT

NUM_KILLS = 2  # of each stage at random moments; more find no more that is systematic, the sweep over all writes does
HELD = {"train_agents": "histories/tiny", "train_gpt": "logs/tiny/gpt", "evaluate": "logs/tiny/evaluation"}
NEEDED = {"train_agents": [], "train_gpt": ["histories"], "evaluate": ["histories", "logs/tiny/gpt"]}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("stage", "signals", "at_least"),
    [
        ("train_agents", ["SIGKILL", "SIGTERM:40", "SIGINT:0,20,33,60"], 60),
        ("train_gpt", ["SIGKILL", "SIGTERM:20", "SIGINT:0,7,22,30"], 33),
        ("evaluate", ["SIGKILL", "SIGTERM:1", "SIGINT:4"], 9),
    ],
)
def test_every_write_may_be_the_last(
    finished: Path, tmp_path: Path, stage: str, signals: list[str], at_least: int
) -> None:
    folder = tmp_path / "root"
    folder.mkdir()
    for part in NEEDED[stage]:
        shutil.copytree(finished / part, folder / part)
    swept = subprocess.run(
        [sys.executable, PROJECT / "tests/stages/crash.py", stage, folder, *signals],
        cwd=PROJECT,
        env=os.environ
        | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": f"{PROJECT}:{PROJECT / 'tests'}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert swept.returncode == 0, swept.stderr
    report = json.loads(swept.stdout)
    assert not any(found["failures"] for found in report.values()), (report, swept.stderr)
    assert report["SIGKILL"]["points"] >= at_least
    for name, _, points in (text.partition(":") for text in signals[1:]):
        assert report[name]["points"] == len(points.split(","))


def test_killed_at_random_moments(finished: Path, tmp_path: Path) -> None:
    for stage in STAGES:
        for _ in range(NUM_KILLS):
            process = start_and_wait_for_lock(stage, tmp_path)
            time.sleep(random.uniform(0, 0.6))
            process.kill()
            if ended(process).code == 0:
                break  # it was faster
        outcome = ended(start(stage, tmp_path))
        assert outcome.code == 0, outcome
    assert results_of(tmp_path) == results_of(finished)


def start_and_wait_for_lock(stage: str, root: Path) -> subprocess.Popen[str]:
    """Start a stage and return once its imports are over and its work begins."""
    lock = root / HELD[stage] / ".lock"
    lock.unlink(missing_ok=True)
    process = start(stage, root)
    while not lock.exists() and process.poll() is None:
        time.sleep(0.01)
    return process
