"""Data parallel training: one run of `torchrun` with two processes (`parallel.py`), looked at from many sides."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from kin import all_gone
from parallel import critic
from torch import Tensor
from toy import CPU, config_of, left_in, model_of, run, steps_of, values_of, weights_of

from icrl.config.paths import PROJECT
from icrl.contracts import ConfigError, PipelineError
from icrl.runs.checkpoint import load_newest
from icrl.runs.distributed import Ranks, joined

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
ENVIRONMENT = os.environ | {
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": os.pathsep.join(str(path) for path in (PROJECT / "src", PROJECT / "tests/helpers")),
}


@pytest.fixture(scope="module")
def parallel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two processes left: a folder for each case, and what each process found in 0.json and 1.json."""
    folder = tmp_path_factory.mktemp("parallel")
    done = subprocess.run(
        [*TORCHRUN, str(PROJECT / "tests/helpers/parallel.py"), str(folder)],
        cwd=PROJECT,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def found(parallel: Path) -> dict[str, list[Any]]:
    """What each process found, by case."""
    ranks = [json.loads((parallel / f"{rank}.json").read_text()) for rank in (0, 1)]
    found = {name: [one[name] for one in ranks] for name in ranks[0]}
    assert found["rank"] == [0, 1] and found["size"] == [2, 2] and found["group_is_gone"] == [True, True]
    return found


def generators_in(folder: Path) -> list[Tensor]:
    """States of all processes' generators in the newest checkpoint."""
    newest = load_newest(folder, "last", CPU)
    assert newest
    return newest[0]["generators"]["cpu"]


def test_two_processes_learn_what_one_learns(parallel: Path, found: dict[str, list[Any]], tmp_path: Path) -> None:
    """From the same batches in all, without dropout."""
    options = {"grads_and_vars": True, "action_distributions": True}
    run(tmp_path, config_of(trainer={"num_iterations": 6}, summaries=options), model_of(0, dropout=0.0))
    for case in ("equal_to_one_process", "with_accumulation"):
        assert found[case] == ["", ""]
        torch.testing.assert_close(weights_of(parallel / case), weights_of(tmp_path), rtol=0, atol=1e-6)
        for tag in ("loss", "accuracy", "gradient_norm"):  # averages over both
            ours = values_of(parallel / case, f"train/{tag}")
            assert ours == pytest.approx(values_of(tmp_path, f"train/{tag}"), abs=1e-5), tag


def test_a_resumed_run_equals_an_undisturbed_one_to_the_bit(parallel: Path, found: dict[str, list[Any]]) -> None:
    """With dropout that differs between processes. The signal went to the first alone, and both stopped."""
    assert found["with_dropout"] == ["", ""]
    stopped = "Stopped: SIGTERM: update 5 of 6 is saved; the same command continues"
    assert found["resumed"] == [[stopped, ""]] * 2
    assert left_in(parallel / "resumed") == left_in(parallel / "with_dropout")
    first, second = generators_in(parallel / "resumed")
    assert not torch.equal(first, second)


def test_a_run_goes_on_with_more_or_fewer_processes(
    parallel: Path, found: dict[str, list[Any]], tmp_path: Path
) -> None:
    assert found["grown"] == ["", ""]
    assert len(generators_in(parallel / "grown")) == 2
    for name in ("last-000000005.pt", "last-000000005.json"):
        (tmp_path / name).write_bytes((parallel / "resumed" / name).read_bytes())
    run(tmp_path, config_of(trainer={"num_iterations": 6, "evaluate": False}))
    assert len(generators_in(tmp_path)) == 1


def test_what_goes_wrong_with_one_stops_all_and_they_say_the_same(parallel: Path, found: dict[str, list[Any]]) -> None:
    """Parameters that differ, or a loss that is no number; also with float16, where the first process sees nothing of
    it but a gradient that is skipped."""
    for case, expected in (
        ("differing", "PipelineError: after update 4 rank 1 differs from rank 0 in the parameters 4.bias"),
        ("broken_down", "DivergedError: train_gpt, in update 6: loss, gradient_norm not finite"),
        ("broken_down_in_half", "DivergedError: train_gpt, in update 5: loss not finite"),
    ):
        assert all(one.startswith(expected) for one in found[case]), found
        assert steps_of(parallel / case) == [3] and not [*(parallel / case).glob("crash-*")]


def test_two_processes_learn_the_values_that_one_learns(
    parallel: Path, found: dict[str, list[Any]], tmp_path: Path
) -> None:
    """And their slow copies; in all forms both have the same parameters after every update."""
    assert found["critic"] == found["critic_on_fixed_trunk"] == ["", ""]
    assert critic(tmp_path, Ranks()) == ""
    theirs, ours = weights_of(tmp_path), weights_of(parallel / "critic")
    assert theirs["updates"] == ours["updates"] == 6
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)
    fixed = weights_of(parallel / "critic_on_fixed_trunk")
    assert fixed["updates"] == 6 and not torch.equal(
        fixed["target.q_heads.0.0.weight"], fixed["online.q_heads.0.0.weight"]
    )


def test_all_processes_are_told_the_same(found: dict[str, list[Any]]) -> None:
    shared = [True, False, [1.5, 15.0], [[1.0, 10.0], [2.0, 20.0]]]
    assert found["of_all"] == [[*shared, [1.0, 10.0]], [*shared, [2.0, 20.0]]]


def test_one_process_talks_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setattr(torch.distributed, "all_reduce", None)
    monkeypatch.setattr(torch.distributed, "init_process_group", None)
    with joined(CPU) as (ranks, device):
        assert (ranks.rank, ranks.size, ranks.is_writer, device) == (0, 1, True, CPU)
        values = torch.ones(2)
        assert ranks.any(True) and not ranks.any(False)
        assert torch.equal(ranks.average(values), values) and torch.equal(ranks.gather(values)[0], values)
        ranks.check_equal(model_of(0), 1)
        ranks.check_divides(6, 3)
        with pytest.raises(ConfigError, match=r"mini_batch_size=6 .* 1 processes .*accumulation_steps=4"):
            ranks.check_divides(6, 4)


WAITING = """
import os, time, torch
from icrl.runs.distributed import joined
with joined(torch.device("cpu")) as (ranks, _):
    os.write(1, b"%d\\n" % os.getpid())
    if ranks.is_writer:
        ranks.any(True)  # the other one never says
    time.sleep(1000)
"""


def test_processes_end_when_torchrun_is_killed(tmp_path: Path) -> None:
    """One waits for an answer of the other, which sleeps."""
    (program := tmp_path / "waiting.py").write_text(WAITING)
    command = [*TORCHRUN, str(program)]
    with subprocess.Popen(command, cwd=PROJECT, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) as torchrun:
        assert torchrun.stdout
        pids = [int(torchrun.stdout.readline()) for _ in range(2)]
        torchrun.kill()
    assert all_gone(pids)


AS_TORCHRUN = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}


@pytest.fixture
def rank(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The environment of a process of torchrun, to change."""
    for name, value in AS_TORCHRUN.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def refusal(device: torch.device = CPU) -> str:
    with pytest.raises(PipelineError) as refused, joined(device):
        pytest.fail("it joined")
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_a_process_of_torchrun_is_not_sent_to_a_gpu(rank: pytest.MonkeyPatch) -> None:
    """All of them would be sent to the same one, or to one that is not there."""
    message = refusal(torch.device("cuda:1"))
    assert message.startswith("device.type=cuda:1: ") and message.endswith(" device.type=cuda")
    rank.setenv("LOCAL_RANK", "1")
    rank.setattr(torch.cuda, "device_count", lambda: 1)
    assert "LOCAL_RANK=1" in (message := refusal(torch.device("cuda"))) and "--nproc-per-node=1" in message


def test_a_rank_without_the_rest_is_refused(rank: pytest.MonkeyPatch) -> None:
    for name, missing in (("MASTER_PORT", "MASTER_PORT"), ("LOCAL_RANK", "LOCAL_RANK, MASTER_PORT")):
        rank.delenv(name)
        assert f"RANK=0 is set in the environment, but {missing} not: torchrun sets all of them" in refusal()


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        *[("RANK", value, "from 0 to WORLD_SIZE - 1 = 1") for value in ("first", "-1", "2")],
        ("LOCAL_RANK", "2", "from 0 to WORLD_SIZE - 1 = 1"),
        ("WORLD_SIZE", "0", "from 1 to 1000000"),
        ("WORLD_SIZE", "2.0", "from 1 to 1000000"),
        ("WORLD_SIZE", "9" * 5000, "from 1 to 1000000"),
        ("MASTER_PORT", "65536", "from 0 to 65535"),
    ],
)
def test_a_rank_that_cannot_be_is_refused(rank: pytest.MonkeyPatch, name: str, value: str, allowed: str) -> None:
    rank.setenv(name, value)
    assert refusal().startswith(f"{name}={value} in the environment: must be an int {allowed};")
