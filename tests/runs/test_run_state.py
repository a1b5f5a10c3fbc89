"""Run state: what a run saves when it is asked to stop or fails, and that it resumes to the bit."""

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import nn
from toy import CPU, batch_at, config_of, doing, dying, left_in, model_of, run, steps_of

from icrl.contracts import Batch, ConfigError, PipelineError, Stopped
from icrl.runs import checkpoint
from icrl.runs.checkpoint import Interval
from icrl.runs.distributed import Ranks
from icrl.runs.run_state import Generators, RunState

BOTH = (signal.SIGTERM, signal.SIGUSR2)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Every test puts the handlers back."""
    before = [signal.getsignal(number) for number in BOTH]
    yield
    assert [signal.getsignal(number) for number in BOTH] == before


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    run(folder := tmp_path_factory.mktemp("undisturbed"))
    return left_in(folder)


def state_of(folder: Path, **changes: Any) -> RunState:
    options = config_of(checkpoints={"checkpoint_interval": 4}).checkpoints
    return RunState(folder, {"program": "train_gpt", "run": "f00d"}, options, 10, CPU, **changes)


def fail(folder: Path, error: BaseException, **changes: Any) -> list[int]:
    """Raise within the context of a run; returns the steps of crash checkpoints."""
    with pytest.raises(type(error), match="mine") as caught, state_of(folder, **changes):
        raise error
    assert caught.value is error
    return steps_of(folder, "crash")


@pytest.mark.parametrize(
    ("interval", "due"),
    [
        (Interval(0, 4, 10), [4, 8]),
        (Interval(3, 0, 10), [4, 7, 10]),
        (Interval(20, 0, 10), [*range(1, 11)]),
        (Interval(0, 4, 10, end=True), [4, 8, 10]),
        (Interval(0, 0, 10), []),
    ],
)
def test_intervals(interval, due):
    assert [iteration for iteration in range(11) if interval.due(iteration)] == due


def test_parts_are_saved_when_due_and_restored_by_name(tmp_path):
    with state_of(tmp_path) as state:
        assert state.is_fresh and not state.is_saved
        part = state.restore("part", nn.Linear(1, 1))
        for state.done in range(1, 11):
            nn.init.constant_(part.bias, 7 * state.done)
            state.save_if_due()
    assert steps_of(tmp_path) == [8, 10]
    again = state_of(tmp_path)
    assert (again.done, again.is_fresh, again.is_saved) == (10, False, True)
    assert again.restore("part", nn.Linear(1, 1)).bias == 70
    with pytest.raises(PipelineError, match="checkpoint of update 10 of 10 in .* has no part new: another version"):
        again.restore("new", nn.Linear(1, 1))


def test_a_signal_is_answered_once(tmp_path, capsys):
    with state_of(tmp_path) as state:
        signal.raise_signal(signal.SIGUSR2)
        for state.done in (1, 2):
            state.save_if_due()
    assert steps_of(tmp_path) == [1] and capsys.readouterr().out.count("SIGUSR2: update 1 of 10 is saved") == 1


def test_another_thread_trains_without_handlers(tmp_path):
    config = config_of(trainer={"num_iterations": 2, "evaluate": False})
    with ThreadPoolExecutor() as pool:
        pool.submit(run, tmp_path, config, model_of(0)).result()
    assert steps_of(tmp_path) == [2]


def test_a_crash_is_saved_by_the_first_rank(tmp_path, capsys):
    """And an interrupt or a refusal is no crash; where it cannot be saved its error is raised nonetheless."""
    for error in (KeyboardInterrupt, PipelineError, ConfigError, Stopped, OSError, SystemExit):
        assert fail(tmp_path / "refused", error("mine")) == []
    assert fail(tmp_path / "second", ValueError("mine"), ranks=Ranks(1, 2)) == []
    assert fail(tmp_path / "first", ValueError("mine"), ranks=Ranks(0, 2)) == [0]  # does not wait for the second
    (tmp_path / "file").write_text("in the way")
    fail(tmp_path / "file", ValueError("mine"))
    assert "the state of the failed run cannot be saved: cannot write" in capsys.readouterr().err


@pytest.mark.parametrize("number", BOTH)
@pytest.mark.parametrize("update", [0, 10])
def test_a_signal_in_an_update_changes_nothing_in_the_end(tmp_path, undisturbed, number, update):
    batches = doing(lambda: signal.raise_signal(number), update)
    if number == signal.SIGTERM:
        with pytest.raises(Stopped, match=f"SIGTERM: update {update + 1} of 11 is saved"):
            run(tmp_path, batches=batches)
        assert steps_of(tmp_path)[-1] == update + 1 and not steps_of(tmp_path, "crash")
        run(tmp_path, model=model_of(99))
    else:
        run(tmp_path, batches=batches)
    assert left_in(tmp_path) == undisturbed


def test_a_signal_during_a_save_harms_nothing(tmp_path, undisturbed, monkeypatch):
    fsync = os.fsync
    interrupted = Mock(side_effect=lambda file: signal.raise_signal(signal.SIGTERM) or fsync(file))

    def batches(update: int) -> Batch:
        monkeypatch.setattr(os, "fsync", interrupted if update == 2 else fsync)  # the next is the checkpoint of 3
        return batch_at(update)

    with pytest.raises(Stopped, match="update 4 of 11 is saved"):
        run(tmp_path, batches=batches)
    for sidecar in checkpoint.sidecars(tmp_path, "last"):
        checkpoint.load(sidecar, CPU)
    run(tmp_path, model=model_of(99))
    assert left_in(tmp_path) == undisturbed


@pytest.mark.parametrize("number", BOTH)
@pytest.mark.parametrize("dead", [None, 4])
def test_a_signal_before_the_first_update_of_a_session(tmp_path, undisturbed, number, dead, monkeypatch):
    """A new run saves its start; a resumed one has its checkpoint already."""
    if dead:
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path, batches=dying(dead))
    enter = RunState.__enter__
    with monkeypatch.context() as patch, pytest.raises((Stopped, KeyboardInterrupt)):
        patch.setattr(RunState, "__enter__", lambda state: (enter(state), signal.raise_signal(number))[0])
        run(tmp_path, model=model_of(99) if dead else None, batches=dying(3 if dead else 0))
    assert steps_of(tmp_path) == [3 if dead else 0]
    run(tmp_path, model=model_of(99))
    assert left_in(tmp_path) == undisturbed


def test_the_generator_of_the_gpu_that_is_used_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever GPU is the current one, here the first."""
    first, second = (torch.device("cuda", index) for index in (0, 1))
    states = {first: torch.zeros(3), second: torch.ones(3)}
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device=first: states[device])
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device=first: states.update({device: state}))
    generators = Generators(second, Ranks())
    saved = generators.state_dict()
    states[second] = torch.zeros(3)
    generators.load_state_dict(saved)
    assert [state.tolist() for state in states.values()] == [[0] * 3, [1] * 3]
