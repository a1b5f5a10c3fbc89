"""Data parallel training of critics: one run of `torchrun` with two processes (`parallel_critics.py`)."""

import json
import subprocess
import sys

import pytest
import torch
from parallel_critics import critic
from toy import weights_of

from icrl.config.paths import PROJECT
from icrl.runs.distributed import Ranks

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


@pytest.mark.long
def test_two_processes_learn_the_values_that_one_learns(tmp_path):
    """And their slow copies; in all forms both have the same parameters after every update."""
    ended = subprocess.run([*TORCHRUN, str(PROJECT / "tests/helpers/parallel_critics.py"), str(tmp_path)], check=False)
    assert ended.returncode == 0
    ranks = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in (0, 1)]
    found = {name: [one[name] for one in ranks] for name in ("critic", "critic_on_fixed_trunk")}
    assert found["critic"] == found["critic_on_fixed_trunk"] == ["", ""]
    assert critic(tmp_path / "alone", Ranks()) == ""
    theirs, ours = weights_of(tmp_path / "alone"), weights_of(tmp_path / "critic")
    assert theirs["updates"] == ours["updates"] == 6
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)
    fixed, head = weights_of(tmp_path / "critic_on_fixed_trunk"), "q_heads.0.0.weight"
    assert fixed["updates"] == 6 and not torch.equal(fixed[f"target.{head}"], fixed[f"online.{head}"])
