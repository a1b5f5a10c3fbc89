"""Data parallel training: one run of `torchrun` with two processes (`parallel.py`), looked at from many sides, and two
processes of this machine without it (`ranks.py`)."""

import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
import ranks
import torch
from harness import refusal
from kin import family
from torch import Tensor
from toy import CPU, config_of, left_in, model_of, run, steps_of, values_of, weights_of

from icrl.contracts import ConfigError, PipelineError
from icrl.extensions.scaling import ranks as scaling
from icrl.extensions.scaling.ranks import JoinedRanks, Together
from icrl.runs.checkpoint import load_newest
from icrl.runs.files import PROJECT

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def parallel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two processes left: a folder for each case, and what each process found in 0.json and 1.json."""
    folder = tmp_path_factory.mktemp("parallel")
    command = [*TORCHRUN, str(PROJECT / "tests/helpers/parallel.py"), str(folder)]
    subprocess.run(command, cwd=PROJECT, env=ENVIRONMENT, timeout=120, check=True)
    return folder


@pytest.fixture(scope="module")
def found(parallel: Path) -> dict[str, list]:
    """What each process found, by case."""
    ranks = [json.loads((parallel / f"{rank}.json").read_text()) for rank in (0, 1)]
    found = {name: [one[name] for one in ranks] for name in ranks[0]}
    assert found["rank"] == [0, 1] and found["size"] == [2, 2] and found["group_is_gone"] == [True, True]
    return found


def generators_in(folder: Path) -> list[Tensor]:
    """States of all processes' generators in the newest checkpoint."""
    return load_newest(folder, "last", CPU)[0]["generators"]["cpu"]


@pytest.mark.long
def test_two_processes_learn_what_one_learns(parallel, found, tmp_path):
    """From the same batches in all, without dropout."""
    run(tmp_path, config_of(trainer={"num_iterations": 6}), model_of(0, dropout=0.0))
    for case in ("equal_to_one_process", "with_accumulation"):
        assert found[case] == ["", ""]
        torch.testing.assert_close(weights_of(parallel / case), weights_of(tmp_path), rtol=0, atol=1e-6)
        for tag in ("loss", "accuracy", "gradient_norm"):  # averages over both
            ours = values_of(parallel / case, f"train/{tag}")
            assert ours == pytest.approx(values_of(tmp_path, f"train/{tag}"), abs=1e-5), tag


@pytest.mark.long
def test_a_resumed_run_equals_an_undisturbed_one_to_the_bit(parallel, found):
    """With dropout that differs between processes. The signal went to the first alone, and both stopped."""
    assert found["with_dropout"] == ["", ""]
    stopped = "Stopped: SIGTERM: update 5 of 6 is saved; the same command continues"
    assert found["resumed"] == [[stopped, ""]] * 2
    assert left_in(parallel / "resumed") == left_in(parallel / "with_dropout")
    first, second = generators_in(parallel / "resumed")
    assert not torch.equal(first, second)


@pytest.mark.long
def test_a_run_goes_on_with_more_or_fewer_processes(parallel, found, tmp_path):
    assert found["grown"] == ["", ""]
    assert len(generators_in(parallel / "grown")) == 2
    for name in ("last-000000005.pt", "last-000000005.json"):
        (tmp_path / name).write_bytes((parallel / "resumed" / name).read_bytes())
    run(tmp_path, config_of(trainer={"num_iterations": 6, "evaluate": False}))
    assert len(generators_in(tmp_path)) == 1


@pytest.mark.long
def test_what_goes_wrong_with_one_stops_all_and_they_say_the_same(parallel, found):
    """A loss that is no number; also with float16, where the first process sees nothing of it but a gradient that is
    skipped."""
    for case, expected in (
        ("broken_down", "DivergedError: train_gpt, in update 6: loss, gradient_norm not finite"),
        ("broken_down_in_half", "DivergedError: train_gpt, in update 5: loss not finite"),
    ):
        assert all(one.startswith(expected) for one in found[case]), found
        assert steps_of(parallel / case) == [3] and not [*(parallel / case).glob("crash-*")]


def test_one_process_talks_to_nobody_and_starts_no_other(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setattr(torch.distributed, "all_reduce", None)
    monkeypatch.setattr(torch.distributed, "init_process_group", None)
    monkeypatch.setattr("icrl.extensions.scaling.ranks.Worker", None)
    assert Together().in_ranks(ranks.told, 5, 1)["gathered"] == [[os.getpid(), 0, 1, 5]]
    with Together().joined(CPU) as (alone, device):
        assert (alone.rank, alone.size, alone.is_writer, device) == (0, 1, True, CPU)
        values = torch.ones(2)
        assert torch.equal(alone.average(values), values)
        alone.check_divides(6, 3)


def test_each_process_gets_as_many_windows():
    JoinedRanks(0, 2).check_divides(6, 3)
    with pytest.raises(ConfigError, match=r"mini_batch_size=6 .* 2 processes .*accumulation_steps=2"):
        JoinedRanks(0, 2).check_divides(6, 2)


DYING = """
import os, signal, sys
from pathlib import Path
from parallel import fitted
from toy import CPU, model_of
from icrl.runs.distributed import process_group
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
with process_group().joined(CPU) as (ranks, _):
    die = lambda: os.kill(os.getpid(), signal.SIGKILL)
    print(fitted(Path(sys.argv[1]), ranks, model_of(0), (4, 5, -1)[attempt], die, rank=(1, 0, 0)[attempt]))
"""


@pytest.mark.long
def test_a_run_goes_on_by_itself_after_a_lost_process(parallel, tmp_path):
    """Killed in update 4 the second process, then in update 5 the first one; same bits as after a plain resume."""
    (program := tmp_path / "dying.py").write_text(DYING)
    path = os.pathsep.join(str(PROJECT / folder) for folder in ("src", "tests/helpers"))
    command = [*TORCHRUN, "--max-restarts", "2", str(program), str(tmp_path / "run")]
    subprocess.run(command, cwd=PROJECT, env=ENVIRONMENT | {"PYTHONPATH": path}, timeout=200, check=True)
    assert weights_of(tmp_path / "run").keys() == weights_of(parallel / "resumed").keys()
    for name, weight in weights_of(parallel / "resumed").items():
        assert torch.equal(torch.as_tensor(weight), torch.as_tensor(weights_of(tmp_path / "run")[name])), name


FROM_0 = "must be an int from 0 to WORLD_SIZE - 1 = 1;"


@pytest.mark.parametrize(
    ("device", "changes", "said"),
    [
        *[("cpu", {"RANK": value}, [f"RANK={value} in the environment: {FROM_0}"]) for value in ("first", "2")],
        ("cpu", {"WORLD_SIZE": "9" * 5000}, ["WORLD_SIZE=9", "must be an int from 1 to 1000000;"]),
        ("cpu", {"LOCAL_RANK": "", "MASTER_PORT": ""}, ["but not LOCAL_RANK, MASTER_PORT: torchrun sets all of them"]),
        ("cuda:1", {}, ["device.type=cuda:1: ", " device.type=cuda"]),  # all would be sent to the same one
        ("cuda", {"LOCAL_RANK": "1"}, ["LOCAL_RANK=1: ", "--nproc-per-node=1"]),  # or to one that is not there
        ("cpu", {"RANK": "1"}, ["nothing answers at MASTER_ADDR:MASTER_PORT=127.0.0.1:1, where torchrun or"]),
    ],
)
def test_a_process_of_torchrun_that_cannot_be_is_refused(monkeypatch, device, changes, said):
    as_torchrun = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    for name, value in (as_torchrun | changes).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(scaling, "_PATIENCE", timedelta(seconds=0.5))
    with pytest.raises(PipelineError) as refused, Together().joined(torch.device(device)):
        pytest.fail("it joined")
    assert all(part in str(refused.value) for part in said) and "\n" not in str(refused.value)


def test_torchrun_is_for_programs_that_share_their_work(tmp_path, monkeypatch):
    """One process of it is as good as none."""
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    Together().check_alone("evaluate")
    monkeypatch.setenv("WORLD_SIZE", "2")
    Together().check_alone("train_gpt")
    for program in ("train_agents", "evaluate"):
        message = refusal(program, tmp_path)
        assert message.startswith(f"WORLD_SIZE=2: {program} runs in one process, without torchrun;")


# ---- two processes of this machine without torchrun


def environment() -> dict[str, str]:
    """Variables but for those that pytest and the compiler of torch set."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "TORCHINDUCTOR"))}


@pytest.fixture(autouse=True)
def clean():
    """Whatever happens, no process, no group and no variable of the environment is left."""
    before, processes = environment(), len(family(os.getpid()))
    yield
    assert environment() == before and not torch.distributed.is_initialized()
    assert len(family(os.getpid())) <= processes + 2  # the servers of multiprocessing stay


def test_two_processes_share_what_they_know_over_the_loopback_alone(monkeypatch):
    """Also beside variables of another group."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "nowhere")
    monkeypatch.setenv("RANK", "0")
    found = Together().in_ranks(ranks.told, 5, 2)
    (here, *first), (there, *second) = found["gathered"]
    assert here == os.getpid() != there and (first, second) == ([0, 2, 5], [1, 2, 5])
    assert torch.equal(found["flags"], torch.tensor([[True, True], [False, True]]))
    assert torch.equal(found["numbers"], torch.tensor([[0.5, 1.5]])) and found["any"] == [True, False]
    assert found["addresses"] == {ranks.address("127.0.0.1")}
    assert os.environ["GLOO_SOCKET_IFNAME"] == "nowhere"


FAILED = "^process 1 of the training failed: ValueError: mine$"
DIED = r"^process 1 of the training died \(exit code -9\); the same command continues"


@pytest.mark.parametrize(
    ("how", "said"),
    [
        pytest.param("raises early", FAILED, marks=pytest.mark.long),
        ("raises late", FAILED),
        ("dies early", DIED),
        pytest.param("dies late", DIED, marks=pytest.mark.long),
    ],
)
def test_the_fate_of_the_other_process_ends_this_one(how, said, capfd):
    """Before it joins, and where this one waits for it."""
    with pytest.raises(PipelineError, match=said):
        Together().in_ranks(ranks.broken, how, 2)
    assert capfd.readouterr() == ("", "")


def test_gradients_are_averaged_in_one_exchange(monkeypatch):
    """Those of parameters that have one; the other rank's are three times as large."""
    sent: list[torch.Tensor] = []

    def all_reduce(total: torch.Tensor) -> None:
        sent.append(total.clone())
        total *= 4

    monkeypatch.setattr(torch.distributed, "all_reduce", all_reduce)
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 1))
    model[1].bias.requires_grad_(False)
    (model(torch.ones(1, 2)) ** 2).sum().backward()
    before = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    JoinedRanks(0, 2).average_gradients(model)
    assert [len(one) for one in sent] == [12] and model[1].bias.grad is None
    for name, gradient in before.items():
        torch.testing.assert_close(model.get_parameter(name).grad, 2 * gradient)
