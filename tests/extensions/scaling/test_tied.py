"""Processes that end with their launcher, however early it is killed (Linux)."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from harness import TINY
from kin import all_gone, family

from icrl.extensions.scaling.tied import LAUNCHER
from icrl.runs.files import PROJECT

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
CHILD = "import os; input(); import icrl; os.write(1, b'tied'); import time; time.sleep(1000)"
START = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", sys.argv[2]], stdin=0, env=os.environ | {sys.argv[1]: str(os.getpid())})
print(child.pid, flush=True)
time.sleep(1000)
"""


@pytest.mark.parametrize(("variable", "early"), [(LAUNCHER, True), (LAUNCHER, False), ("TORCHELASTIC_RUN_ID", False)])
def test_a_process_ends_with_the_one_that_started_it(variable: str, early: bool) -> None:
    """Killed before the first import of the library, or after it."""
    command = [sys.executable, "-c", START, variable, CHILD]
    (given, give), (told, tell) = os.pipe(), os.pipe()
    with subprocess.Popen(command, stdin=given, stdout=subprocess.PIPE, stderr=tell, text=True) as launcher:
        os.close(given)
        os.close(tell)
        assert launcher.stdout
        child = int(launcher.stdout.readline())
        if not early:
            os.write(give, b"\n")
            assert launcher.stdout.read(4) == "tied"
        launcher.kill()
        launcher.wait()
        if early:
            os.write(give, b"\n")
        os.close(give)
        assert all_gone([child])
        assert os.read(told, 1) == b""  # it was not an error that ended it
        os.close(told)


@pytest.mark.long
@pytest.mark.parametrize("seconds", [0, 1, 2, 5, 10])
def test_processes_of_torchrun_end_with_it_at_any_time_of_their_start(root: Path, seconds: float) -> None:
    options = [*TINY, f"root={root}", "name=endless", "histories=tiny", "trainer.num_iterations=1000000"]
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([*command, "-m", "src.train_gpt", *options], cwd=PROJECT, **quiet) as torchrun:
        while len(ranks := family(torchrun.pid)) < 2:
            assert torchrun.poll() is None
            time.sleep(0.01)
        time.sleep(seconds)
        ranks = family(torchrun.pid)
        torchrun.kill()
    assert len(ranks) >= 2 and all_gone(ranks)
