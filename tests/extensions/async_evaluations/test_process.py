"""The process of evaluations: whatever it does, training goes on."""

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from evaluated import OWNER, look, make, state_at, steps_in
from kin import is_alive
from toy import steps_of, values_of

from icrl.contracts import PipelineError
from icrl.runs import checkpoint
from icrl.runs.evaluations import Evaluation


def look_around(state: dict[str, Any]) -> Evaluation:
    """And what the process looks like from within."""
    blocked = len(signal.pthread_sigmask(signal.SIG_BLOCK, []))
    seen = {"nice": os.nice(0), "threads": torch.get_num_threads(), "blocked": blocked, "pid": os.getpid()}
    return Evaluation(look(state).metrics | seen, state["score"])


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def test_a_process_of_its_own(tmp_path, monkeypatch, capsys):
    """Training goes on while it works; it yields to training, leaves signals to it, survives being killed, and starts
    with the first evaluation."""
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    gate = tmp_path / "gate"
    with make(tmp_path, look=look_around) as service:
        assert service._worker is None
        state = state_at(1, "wait", gate)
        service.start(1, state)
        before = time.monotonic()
        state["w"].zero_()  # as an update would
        for step in (2, 3):
            service.start(step, state_at(step))
            service.poll()
        assert time.monotonic() - before < 5
        assert not service.results and steps_of(tmp_path, "pending") == [1, 2, 3]
        first = service._worker.process.pid
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2):
            os.kill(first, number)
        gate.touch()
        until(lambda: bool(service.poll() or service.results))
        assert "the process" not in capsys.readouterr().out
        assert service.results[1].metrics == {"sum": 0.75, "nice": 19, "threads": 1, "blocked": 3, "pid": first}
        service.wait()
        assert list(service.results) == steps_in(tmp_path) == [1, 2, 3]
        assert service.results[3].metrics["pid"] == first
    until(lambda: not is_alive(first))  # at idle priority it may take its time to end
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, [])
    assert not steps_of(tmp_path, "pending") and steps_of(tmp_path, "best") == [3]
    assert values_of(tmp_path / "evals", "eval/sum") == [0.75, 1.5, 2.25]


def test_only_states_up_to_the_checkpoint_wait(tmp_path):
    """Later ones are dropped, half-written ones too."""
    for step in (1, 4):
        checkpoint.save(tmp_path, "pending", step, state_at(step), OWNER, keep=9)
    (tmp_path / "pending-000000002.pt").write_bytes(b"half")
    (tmp_path / "pending-000000001.json.partial").write_bytes(b"half")
    with make(tmp_path, done=2, async_eval=False) as service:
        assert list(service.results) == steps_in(tmp_path) == [1]
    assert not [*tmp_path.glob("pending-*")] and steps_of(tmp_path, "best") == [1]


def test_states_of_another_run_and_renamed_ones_are_refused(tmp_path):
    """But a run that begins anew drops all that was there."""
    checkpoint.save(tmp_path, "pending", 1, state_at(1), {"program": "train_gpt", "run": "beef"}, keep=9)
    refusal = r" is from train_gpt \(run beef\), but train_gpt \(run f00d\) is needed here"
    with pytest.raises(PipelineError, match=refusal):
        make(tmp_path, done=1)
    with make(tmp_path) as service:
        assert not service.results
    checkpoint.save(tmp_path, "pending", 1, state_at(1), OWNER, keep=9)
    for path in tmp_path.glob("pending-*"):
        path.rename(path.with_stem("pending-000000002"))
    with pytest.raises(checkpoint.DamagedCheckpointError, match="was written as pending-000000001"):
        make(tmp_path, done=2)


def fates(step: int, fate: str, times: int = 3) -> list[str]:
    """Lines about a process that ends in this way so many times."""
    line = f"the process for the evaluation at step {step} {fate}; "
    return ([line + "restarting it"] * 2 + [line + "giving up after 3 attempts"])[:times]


@pytest.mark.long
def test_one_that_kills_its_process_or_raises_is_given_up(tmp_path, capsys):
    """The deaths of one are not counted against the next, nor that of a process with nothing to do."""
    with make(tmp_path) as service:
        for step, act in ((1, "kill twice"), (2, "kill"), (3, "raise"), (4, "")):
            service.start(step, state_at(step, act, tmp_path / "death"))
        service.wait()
        os.kill(idle := service._worker.process.pid, signal.SIGKILL)
        until(lambda: not is_alive(idle))
        service.start(5, state_at(5))
        service.wait()
        assert list(service.results) == steps_in(tmp_path) == [1, 4, 5]
    died, told = "died (exit code -9)", capsys.readouterr().out
    lines = [line for line in told.splitlines() if "died" in line]
    assert lines == fates(1, died, 2) + fates(2, died) + fates(5, died, 1)
    assert told.count(" step 3 failed:\nTraceback") == told.count("ValueError: no such thing") == 3
    assert not steps_of(tmp_path, "pending") and steps_of(tmp_path, "best") == [1]


def test_one_that_hangs_is_cut(tmp_path, monkeypatch, capsys):
    """Whether it waits or is stopped."""
    monkeypatch.setattr("icrl.extensions.async_evaluations.process.PATIENCE", 0.5)
    with make(tmp_path) as service:
        service.start(1, state_at(1, "wait", tmp_path / "never"))
        first = service._worker.process.pid
        os.kill(first, signal.SIGSTOP)
        before, work = time.monotonic(), time.process_time()
        service.wait()
        assert 1.4 < time.monotonic() - before < 20
        assert time.process_time() - work < 1  # it does not spin
        assert not service.results and not steps_of(tmp_path, "pending")
        until(lambda: not is_alive(first))
    told = capsys.readouterr().out.splitlines()
    assert [line for line in told if "the process" in line] == fates(1, "gave no answer in 0.5 s")
