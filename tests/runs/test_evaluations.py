"""Periodic evaluations: whatever dies, training goes on and ends with what an undisturbed run ends with."""

import itertools
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from kin import is_alive
from toy import CPU, curves, steps_of, use_worker_here, values_of

from icrl.contracts import PipelineError
from icrl.runs import checkpoint
from icrl.runs.evaluations import EvalsConfig, Evaluation, Evaluations
from icrl.runs.files import Identity, read_json, write_owned

SCORES = [9.0, 1.0, 3.0, 3.0, float("nan"), 0.0]  # of steps 0 to 5: the best is 3, the later of two; never step 0
LAST = (2, 5)  # steps with a checkpoint to go on from
OWNER = {"program": "train_gpt", "run": "f00d"}


def state_at(step: int, act: str = "", where: object = "") -> dict[str, Any]:
    return {"w": torch.full((3,), step / 4), "score": SCORES[step], "act": act, "where": str(where)}


def look(state: dict[str, Any]) -> Evaluation:
    """The score is in the state, and so is what else happens."""
    act, where = state["act"], Path(state["where"])
    if act == "kill twice" and (deaths := len(list(where.parent.glob("death*")))) < 2:
        where.with_name(f"death{deaths}").touch()
        act = "kill"
    if act == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if act == "raise":
        raise ValueError("no such thing")
    while act == "wait" and not where.exists():
        time.sleep(0.01)
    return Evaluation({"sum": state["w"].sum().item()}, state["score"])


def look_around(state: dict[str, Any]) -> Evaluation:
    """And what the process looks like from within."""
    blocked = len(signal.pthread_sigmask(signal.SIG_BLOCK, []))
    seen = {"nice": os.nice(0), "threads": torch.get_num_threads(), "blocked": blocked, "pid": os.getpid()}
    return Evaluation(look(state).metrics | seen, state["score"])


here = pytest.fixture(use_worker_here)  # no process at all


def make(
    folder: Path, done: int = -1, look: Any = look, trained: int = 1, report: Any = print, **options: Any
) -> Evaluations:
    return Evaluations(folder, "eval", look, EvalsConfig(**options), done, OWNER, report, trained)


def train(folder: Path, *, async_eval: bool) -> None:
    """A loop as ours are: evaluate, then write the checkpoint of that step; go on from the newest one."""
    found = checkpoint.load_newest(folder, "last", CPU)
    done = found[1]["step"] if found else -1
    with make(folder, done, async_eval=async_eval) as service:
        for step in range(done + 1, 6):
            service.start(step, state_at(step))
            if step in LAST:
                checkpoint.save(folder, "last", step, {"step": step}, {}, keep=2)
            service.poll()
        service.wait()


def everything(folder: Path) -> Any:
    return curves(folder / "evals"), {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def steps_in(folder: Path) -> list[int]:
    return [entry["step"] for entry in read_json(folder / "evaluations.json")["evaluations"]]


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    train(folder, async_eval=False)
    return folder


def test_what_a_run_leaves(undisturbed):
    known = read_json(undisturbed / "evaluations.json")["evaluations"]
    assert [(entry["step"], entry["metrics"]) for entry in known] == [(step, {"sum": 0.75 * step}) for step in range(6)]
    assert repr([entry["score"] for entry in known]) == repr(SCORES)
    assert curves(undisturbed / "evals") == {"eval/sum": [(step, repr(0.75 * step)) for step in range(6)]}
    state, sidecar = checkpoint.load_newest(undisturbed, "best", CPU)
    assert sidecar["step"] == 3 and sidecar["description"] == OWNER
    assert torch.equal(state["w"], torch.full((3,), 0.75))
    assert steps_of(undisturbed, "best") == [3] and not [*undisturbed.glob("pending-*")]


def run(folder: Path, last: float = float("inf"), *, async_eval: bool) -> int:
    """Train until the end, or until killed before operation number `last` of those that change files for good; how many
    there were."""
    count = 0

    def counted(operation: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*arguments: Any, **options: Any) -> Any:
            nonlocal count
            if count >= last:
                raise KeyboardInterrupt
            count += 1
            return operation(*arguments, **options)

        return wrapper

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", counted(lambda handle: None))
        for name in ("unlink", "replace"):
            patch.setattr(Path, name, counted(getattr(Path, name)))
        try:
            train(folder, async_eval=async_eval)
        except KeyboardInterrupt:
            assert count == last
    return count


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("first", [True, False], ids=["async", "sync"])
def test_killed_before_any_file_operation(tmp_path, undisturbed, *, first):
    """And continued in the same way or in the other."""
    for last in itertools.count():
        folder = tmp_path / str(last)
        count = run(folder, last, async_eval=first)
        run(folder, async_eval=last % 2 == 0)
        assert everything(folder) == everything(undisturbed)
        if count < last:
            break
    assert last > 40


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("async_eval", [True, False])
def test_going_on_from_an_older_checkpoint(tmp_path, undisturbed, *, async_eval):
    """What came later is forgotten: results, points and pending ones, half-written ones too."""
    train(tmp_path, async_eval=async_eval)
    checkpoint.save(tmp_path, "pending", 4, state_at(4), OWNER, keep=9)
    (tmp_path / "pending-000000002.pt").write_bytes(b"half")
    (tmp_path / "pending-000000001.json.partial").write_bytes(b"half")
    for file in tmp_path.glob("last-000000005*"):
        file.unlink()
    with make(tmp_path, done=2, async_eval=async_eval) as service:
        assert list(service.results) == steps_in(tmp_path) == [0, 1, 2]
        assert not [*tmp_path.glob("pending-*")]
    assert values_of(tmp_path / "evals", "eval/sum") == [0.0, 0.75, 1.5]
    train(tmp_path, async_eval=async_eval)
    assert everything(tmp_path) == everything(undisturbed)


@pytest.mark.parametrize("other", [{"program": "train_gpt", "run": "beef"}, {"program": "train_ilql", "run": "f00d"}])
def test_what_is_of_another_run_is_refused(tmp_path, other):
    """Results as well as what is pending, or was renamed; but a run that begins anew drops all that was there."""
    named = re.escape(str(Identity.of(other)))
    write_owned(tmp_path / "truth/evaluations.json", Identity.of(other), 1, {"evaluations": []})
    checkpoint.save(tmp_path / "pending", "pending", 1, state_at(1), other, keep=9)
    for name in ("truth", "pending"):
        with pytest.raises(PipelineError, match=rf" is from {named}, but train_gpt \(run f00d\) is needed here"):
            make(tmp_path / name, done=1)
        with make(tmp_path / name) as service:
            assert not service.results
    checkpoint.save(tmp_path, "pending", 1, state_at(1), OWNER, keep=9)
    for path in tmp_path.glob("pending-*"):
        path.rename(path.with_stem("pending-000000002"))
    with pytest.raises(checkpoint.DamagedCheckpointError, match="was written as pending-000000001"):
        make(tmp_path, done=2)


def test_a_process_of_its_own(tmp_path, monkeypatch):
    """Training goes on while it works; it yields to training, leaves signals to it, survives being killed, and starts
    with the first evaluation."""
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    gate, reports = tmp_path / "gate", list[str]()
    with make(tmp_path, look=look_around, report=reports.append) as service:
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
        assert not told(reports)
        assert service.results[1].metrics == {"sum": 0.75, "nice": 19, "threads": 1, "blocked": 3, "pid": first}
        service.wait()
        assert list(service.results) == steps_in(tmp_path) == [1, 2, 3]
        assert service.results[3].metrics["pid"] == first
    until(lambda: not is_alive(first))  # at idle priority it may take its time to end
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, [])
    assert not steps_of(tmp_path, "pending") and steps_of(tmp_path, "best") == [3]
    assert values_of(tmp_path / "evals", "eval/sum") == [0.75, 1.5, 2.25]


def told(reports: list[str]) -> list[str]:
    """Lines about processes, not about results."""
    return [line for line in reports if not line.startswith("evaluation at ")]


def fates(step: int, fate: str, times: int = 3) -> list[str]:
    """Lines about a process that ends in this way so many times."""
    line = f"the process for the evaluation at step {step} {fate}; "
    return ([line + "restarting it"] * 2 + [line + "giving up after 3 attempts"])[:times]


@pytest.mark.long
def test_one_that_kills_its_process_or_raises_is_given_up(tmp_path):
    """The deaths of one are not counted against the next, nor that of a process with nothing to do."""
    reports: list[str] = []
    with make(tmp_path, report=reports.append) as service:
        for step, act in ((1, "kill twice"), (2, "kill"), (3, "raise"), (4, "")):
            service.start(step, state_at(step, act, tmp_path / "death"))
        service.wait()
        os.kill(idle := service._worker.process.pid, signal.SIGKILL)
        until(lambda: not is_alive(idle))
        service.start(5, state_at(5))
        service.wait()
        assert list(service.results) == steps_in(tmp_path) == [1, 4, 5]
    died, lines = "died (exit code -9)", told(reports)
    assert lines[:5] == fates(1, died, 2) + fates(2, died) and lines[8:] == fates(5, died, 1)
    assert all(" step 3 failed:\nTraceback" in line and "ValueError: no such thing" in line for line in lines[5:8])
    assert not steps_of(tmp_path, "pending") and steps_of(tmp_path, "best") == [1]


def test_one_that_hangs_is_cut(tmp_path, monkeypatch):
    """Whether it waits or is stopped."""
    monkeypatch.setattr("icrl.runs.evaluations.PATIENCE", 0.5)
    reports: list[str] = []
    with make(tmp_path, report=reports.append) as service:
        service.start(1, state_at(1, "wait", tmp_path / "never"))
        first = service._worker.process.pid
        os.kill(first, signal.SIGSTOP)
        before, work = time.monotonic(), time.process_time()
        service.wait()
        assert 1.4 < time.monotonic() - before < 20
        assert time.process_time() - work < 1  # it does not spin
        assert not service.results and not steps_of(tmp_path, "pending")
        until(lambda: not is_alive(first))
    assert told(reports) == fates(1, "gave no answer in 0.5 s")


@pytest.mark.parametrize(("trained", "best"), [(0, 0), (1, 3), (4, 5)])
def test_what_is_untrained_is_never_the_best(tmp_path, trained, best):
    with make(tmp_path, trained=trained, async_eval=False) as service:
        for step in range(6):
            service.start(step, state_at(step))
    assert steps_of(tmp_path, "best") == [best]
