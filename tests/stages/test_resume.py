"""The same command continues an interrupted stage, and ends with the bits of a run that nothing disturbed."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from harness import done, ended, results_of, start

from icrl.config.paths import PROJECT

NUM_KILLS = int(os.environ.get("ICRL_KILLS", "1"))  # of each training stage at random moments; 20 before a release
EVERY = 1 if NUM_KILLS >= 20 else 5  # of the writes, this one in so many is the last of a run
# Work for more than half a second after each kill, with a checkpoint every few milliseconds; evaluations in a process
# of their own.
LONG = (
    *(f"source.num_env_steps={1200 * NUM_KILLS}", f"source.history_steps={1200 * NUM_KILLS}", "evals.async_eval=true"),
    *(f"trainer.num_iterations={120 * NUM_KILLS}", "checkpoints.checkpoint_interval=7", "evals.eval_interval=50"),
)
HELD = {"train_agents": "histories/tiny", "train_gpt": "logs/tiny/gpt"}
NEEDED = {"train_agents": [], "train_gpt": ["histories"], "evaluate": ["histories", "logs/tiny/gpt"]}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("stage", "signals", "num_writes"),
    [
        ("train_agents", ["SIGTERM:40", "SIGINT:20,60"], 60),
        ("train_gpt", ["SIGTERM:20", "SIGINT:7,30"], 33),
        ("evaluate", ["SIGINT:4"], 9),
    ],
)
def test_every_write_may_be_the_last(
    finished: Path, tmp_path: Path, stage: str, signals: list[str], num_writes: int
) -> None:
    folder = tmp_path / "root"
    folder.mkdir()
    signals = [f"SIGKILL:{','.join(map(str, range(2, num_writes, EVERY)))}", *signals]
    for part in NEEDED[stage]:
        shutil.copytree(finished / part, folder / part)
    swept = subprocess.run(
        [sys.executable, PROJECT / "tests/helpers/crash.py", stage, folder, *signals],
        cwd=PROJECT,
        env=os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert swept.returncode == 0, swept.stderr
    report = json.loads(swept.stdout)
    assert not any(found["failures"] for found in report.values()), (report, swept.stderr)
    for name, _, points in (text.partition(":") for text in signals):
        assert report[name]["points"] == len(points.split(","))


def test_killed_at_random_moments(tmp_path: Path) -> None:
    """Again and again, for real: the same ends as those of a run that nothing disturbed, and evaluated on the spot."""
    root = tmp_path / "killed"
    for stage, folder in HELD.items():
        done(stage, tmp_path / "undisturbed", *LONG, "evals.async_eval=false")
        for _ in range(NUM_KILLS):
            process = start_and_wait_for(root / folder / ".lock", stage, root)  # imports are over, its work begins
            time.sleep(random.uniform(0, 0.3))
            process.kill()
            outcome = ended(process)
            assert outcome.code == -signal.SIGKILL, outcome
        done(stage, root, *LONG)
    assert results_of(root) == results_of(tmp_path / "undisturbed")


def test_asked_to_stop_and_to_save(tmp_path: Path) -> None:
    """SIGTERM ends a stage in order, after a checkpoint; SIGUSR2 does not end it. The same command goes on."""
    for stage, folder in (("train_agents", "source"), ("train_gpt", "gpt")):
        process = start_and_wait_for(tmp_path / f"logs/tiny/{folder}/last-000000007.json", stage, tmp_path)
        process.send_signal(signal.SIGUSR2)
        time.sleep(0.3)
        process.send_signal(signal.SIGTERM)
        outcome = ended(process)
        assert outcome.code == 143, outcome
        assert "SIGTERM: " in outcome.err and "is saved; the same command continues" in outcome.err
        assert "SIGUSR2: " in outcome.out
        done(stage, tmp_path, *LONG)


def start_and_wait_for(file: Path, stage: str, root: Path) -> subprocess.Popen[str]:
    """Start a stage and return once it has written `file`."""
    file.unlink(missing_ok=True)
    process = start(stage, root, *LONG)
    while not file.exists() and process.poll() is None:
        time.sleep(0.005)
    return process
