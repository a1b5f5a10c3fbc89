"""Programs in two processes of this machine: what they are told, and how they end (`helpers/ranks.py`)."""

import os
from pathlib import Path

import pytest
import ranks
import torch
from kin import family
from toy import left_in, steps_of

from icrl.contracts import PipelineError, Stopped
from icrl.extensions.scaling.ranks import JoinedRanks, Together


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


def test_one_process_starts_no_other(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setattr("icrl.extensions.scaling.ranks.Worker", None)
    assert Together().in_ranks(ranks.told, 5, 1)["gathered"] == [[os.getpid(), 0, 1, 5]]


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


@pytest.mark.long
def test_a_run_that_was_stopped_or_lost_a_process_continues_to_the_same_bits(tmp_path: Path):
    assert Together().in_ranks(ranks.trained, (tmp_path / "whole", ""), 2) == ""
    with pytest.raises(Stopped, match="SIGTERM: update 5 of 6 is saved"):
        Together().in_ranks(ranks.trained, (tmp_path / "stopped", "signal"), 2)
    said = Together().in_ranks(ranks.trained, (tmp_path / "dead", "death"), 2)
    assert said.startswith("LostRankError: another process of this run has ended; the same command continues")
    assert steps_of(tmp_path / "dead") == [3] and not [*(tmp_path / "dead").glob("crash-*")]
    for name in ("stopped", "dead"):
        assert Together().in_ranks(ranks.trained, (tmp_path / name, ""), 2) == ""
        assert left_in(tmp_path / name) == left_in(tmp_path / "whole"), name


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
