"""Periodic evaluations: whatever dies, training goes on and ends with what an undisturbed run ends with."""

import itertools
import multiprocessing
import os
import re
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from icrl.contracts import PipelineError
from icrl.runs import checkpoint, evaluations
from icrl.runs.evaluations import EvalsConfig, Evaluation, Evaluations
from icrl.runs.files import Identity, read_json, write_owned
from icrl.runs.processes import IdleWorker

CPU = torch.device("cpu")
SCORES = [9.0, 1.0, 3.0, 3.0, float("nan"), 0.0]  # of steps 0 to 5: the best is 3, the later of two; never step 0
LAST = (2, 5)  # steps with a checkpoint to go on from
NOTHING = {"act": "", "where": ""}


def options_of(async_eval: bool = True, timeout: float = 60.0) -> EvalsConfig:
    return EvalsConfig(async_eval=async_eval, timeout=timeout)


class Killed(BaseException):
    """Stands for kill -9: no code of ours runs after it."""


class Worker:
    """As the process, but here: it answers when it is asked for the second time."""

    def __init__(self, look: Callable[[Path], Evaluation]) -> None:
        self.look = look

    def give(self, sidecar: Path) -> None:
        self.sidecar, self.asked = sidecar, 0

    def answer(self, patience: float) -> Evaluation | None:
        assert patience in (0.0, 1.0)
        self.asked += 1
        return self.look(self.sidecar) if self.asked > 1 else None

    def end(self, patience: float = 0.0) -> None: ...


def state_at(step: int, **changes: Any) -> dict[str, Any]:
    return {"w": torch.full((3,), step / 4), "score": SCORES[step], **NOTHING, **changes}


def look(state: dict[str, Any]) -> Evaluation:
    """The score is in the state, and so is what else happens."""
    act, where = state["act"], Path(state["where"])
    if act == "kill twice" and (deaths := len(list(where.parent.glob("death*")))) < 2:
        where.with_name(f"death{deaths}").touch()
        act = "kill"
    if act == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if act == "hang":
        where.write_text(str(os.getpid()))
        time.sleep(1000)
    if act == "raise":
        raise ValueError("no such thing")
    while act == "wait" and not where.exists():
        time.sleep(0.01)
    return Evaluation({"sum": state["w"].sum().item()}, state["score"])


def look_around(state: dict[str, Any]) -> Evaluation:
    """What the process looks like from within."""
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    seen = {"nice": os.nice(0), "threads": torch.get_num_threads(), "blocked": len(blocked), "pid": os.getpid()}
    return Evaluation(look(state).metrics | seen, state["score"])


@pytest.fixture
def reports() -> list[str]:
    return []


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that start in no time, from a server that has imported PyTorch."""
    monkeypatch.setattr(evaluations, "IdleWorker", partial(IdleWorker, start_method="forkserver"))
    multiprocessing.get_context("forkserver").set_forkserver_preload(["torch", "icrl.runs.evaluations", __name__])


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """No process at all."""
    monkeypatch.setattr(evaluations, "IdleWorker", Worker)


OWNER = Identity.of({})  # of what says nothing of itself


def make(
    folder: Path,
    options: EvalsConfig,
    done: int = -1,
    report: Callable[[str], None] = print,
    look: Any = look,
) -> Evaluations:
    def of_trouble(line: str) -> None:
        """All lines but those that tell of a result."""
        if not line.startswith("evaluation at "):
            report(line)

    return Evaluations(folder, "eval", look, options, done, {"about": "toy"}, of_trouble)


def train(folder: Path, *, async_eval: bool) -> None:
    """A loop as ours are: evaluate, then write the checkpoint of that step; go on from the newest one."""
    found = checkpoint.load_newest(folder, "last", CPU)
    done = found[1]["step"] if found else -1
    with make(folder, options_of(async_eval), done) as service:
        for step in range(done + 1, 6):
            service.start(step, state_at(step))
            if step in LAST:
                checkpoint.save(folder, "last", step, {"step": step}, {}, keep=2)
            service.poll()
        service.wait()


def points(folder: Path) -> dict[str, list[tuple[int, float]]]:
    events = EventAccumulator(str(folder / "evals")).Reload()
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def steps_in(folder: Path) -> list[int]:
    return [entry["step"] for entry in read_json(folder / "evaluations.json")["evaluations"]]


def names(folder: Path, kind: str) -> list[str]:
    return sorted(path.name for path in folder.glob(f"{kind}-*"))


def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def gone(pid: int) -> bool:
    status = Path(f"/proc/{pid}/stat")
    try:
        return status.read_text().rpartition(")")[2].split()[0] == "Z"  # its parent may not have looked yet
    except (FileNotFoundError, ProcessLookupError):
        return True


def pid_of(service: Evaluations) -> int:
    assert service._worker is not None
    return service._worker.process.pid


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    train(folder, async_eval=False)
    return folder


def test_what_a_run_leaves(undisturbed: Path) -> None:
    known = read_json(undisturbed / "evaluations.json")["evaluations"]
    assert [entry["step"] for entry in known] == [0, 1, 2, 3, 4, 5]
    assert [entry["metrics"] for entry in known] == [{"sum": 0.75 * step} for step in range(6)]
    assert repr([entry["score"] for entry in known]) == repr(SCORES)
    assert points(undisturbed) == {"eval/sum": [(step, 0.75 * step) for step in range(6)]}
    state, sidecar = checkpoint.load_newest(undisturbed, "best", CPU)
    assert sidecar["step"] == 3 and sidecar["description"] == {"about": "toy"}
    assert torch.equal(state["w"], torch.full((3,), 0.75))
    assert names(undisturbed, "best") == ["best-000000003.json", "best-000000003.pt"]
    assert not names(undisturbed, "pending")


class Deaths:
    """Counts what changes files for good, and kills before operation number `last`."""

    def __init__(self, patch: pytest.MonkeyPatch, last: float) -> None:
        self.count, self.last = 0, last
        patch.setattr(os, "fsync", self.counted(lambda handle: None))
        for name in ("unlink", "replace"):
            patch.setattr(Path, name, self.counted(getattr(Path, name)))

    def counted(self, operation: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*arguments: Any, **options: Any) -> Any:
            if self.count >= self.last:
                raise Killed
            self.count += 1
            return operation(*arguments, **options)

        return wrapper


def run(folder: Path, last: float = float("inf"), *, async_eval: bool) -> int:
    """Train until the end or until killed before operation `last`; how many there were."""
    with pytest.MonkeyPatch.context() as patch:
        deaths = Deaths(patch, last)
        try:
            train(folder, async_eval=async_eval)
        except Killed:
            assert deaths.count == last
        return deaths.count


def assert_same_end(folder: Path, undisturbed: Path) -> None:
    assert files(folder) == files(undisturbed)
    assert points(folder) == points(undisturbed)


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("first", [True, False], ids=["async", "sync"])
def test_killed_before_any_file_operation(tmp_path: Path, undisturbed: Path, *, first: bool) -> None:
    """And continued in the same way or in the other."""
    for last in itertools.count():
        folder = tmp_path / str(last)
        count = run(folder, last, async_eval=first)
        run(folder, async_eval=last % 2 == 0)
        assert_same_end(folder, undisturbed)
        if count < last:
            break
    assert last > 40


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("async_eval", [True, False])
def test_going_on_from_an_older_checkpoint(tmp_path: Path, undisturbed: Path, *, async_eval: bool) -> None:
    """What came later is forgotten: results, points and pending ones, half-written ones too."""
    train(tmp_path, async_eval=async_eval)
    checkpoint.save(tmp_path, "pending", 4, state_at(4), {}, keep=9)
    (tmp_path / "pending-000000002.pt").write_bytes(b"half")
    (tmp_path / "pending-000000001.json.partial").write_bytes(b"half")
    for file in tmp_path.glob("last-000000005*"):
        file.unlink()
    with make(tmp_path, options_of(async_eval), done=2) as service:
        assert list(service.results) == steps_in(tmp_path) == [0, 1, 2]
        assert not names(tmp_path, "pending")
    assert points(tmp_path)["eval/sum"] == [(0, 0.0), (1, 0.75), (2, 1.5)]
    train(tmp_path, async_eval=async_eval)
    assert_same_end(tmp_path, undisturbed)


@pytest.mark.parametrize("other", [{"program": "train_gpt", "run": "beef"}, {"program": "train_ilql", "run": "f00d"}])
def test_what_is_of_another_run_is_refused(tmp_path: Path, other: dict[str, str]) -> None:
    """Results as well as what is pending; but not where the run begins anew, and drops all that was there."""
    ours, named = {"program": "train_gpt", "run": "f00d"}, re.escape(str(Identity.of(other)))

    def go_on(folder: Path, done: int) -> None:
        with Evaluations(folder, "eval", look, options_of(async_eval=False), done, ours, print) as service:
            assert not service.results

    write_owned(tmp_path / "truth/evaluations.json", Identity.of(other), 1, {"evaluations": []})
    checkpoint.save(tmp_path / "pending", "pending", 1, state_at(1), other, keep=9)
    for name in ("truth", "pending"):
        with pytest.raises(PipelineError, match=rf" is from {named}, but train_gpt \(run f00d\) is needed here"):
            go_on(tmp_path / name, 1)
        go_on(tmp_path / name, -1)


@pytest.mark.parametrize("async_eval", [True, False])
def test_a_pending_one_that_is_damaged_or_renamed_is_refused(tmp_path: Path, *, async_eval: bool) -> None:
    checkpoint.save(tmp_path, "pending", 1, state_at(1), {}, keep=9)
    for path in tmp_path.glob("pending-*"):
        path.rename(path.with_stem("pending-000000002"))
    with pytest.raises(checkpoint.DamagedCheckpointError, match="was written as pending-000000001"):
        make(tmp_path, options_of(async_eval), done=2)


def test_a_process_of_its_own(tmp_path: Path, reports: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Training goes on while it works; it yields to training, leaves signals to it, survives being killed, and starts
    with the first evaluation."""
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    with make(tmp_path, options_of(), report=reports.append, look=look_around) as service:
        assert service._worker is None
        gate = tmp_path / "gate"
        state = state_at(1, act="wait", where=str(gate))
        before = time.monotonic()
        service.start(1, state)
        state["w"].zero_()  # as an update would
        for step in (2, 3):
            service.start(step, state_at(step))
            service.poll()
        assert time.monotonic() - before < 1
        assert not service.results and len(names(tmp_path, "pending")) == 6
        first = pid_of(service)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2):
            os.kill(first, number)
        gate.touch()
        until(lambda: bool(service.poll() or service.results))
        assert not reports
        assert service.results[1].metrics == {"sum": 0.75, "nice": 19, "threads": 1, "blocked": 3, "pid": first}
        service.wait()
        assert list(service.results) == steps_in(tmp_path) == [1, 2, 3]
        assert service.results[3].metrics["pid"] == first
    until(lambda: gone(first))  # at idle priority it may take its time to end
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, [])
    assert not names(tmp_path, "pending")
    assert names(tmp_path, "best") == ["best-000000003.json", "best-000000003.pt"]
    assert points(tmp_path)["eval/sum"] == [(1, 0.75), (2, 1.5), (3, 2.25)]


@pytest.mark.usefixtures("quick")
def test_a_killed_process_is_replaced(tmp_path: Path, reports: list[str]) -> None:
    gate = tmp_path / "gate"
    with make(tmp_path, options_of(), report=reports.append) as service:
        service.start(1, state_at(1, act="wait", where=str(gate)))
        service.start(2, state_at(2))
        first = pid_of(service)
        os.kill(first, signal.SIGKILL)
        until(lambda: bool(service.poll() or reports))
        assert reports == ["the process for the evaluation at step 1 died (exit code -9); restarting it"]
        assert pid_of(service) != first
        gate.touch()
        service.wait()
        assert list(service.results) == [1, 2]
        os.kill(pid_of(service), signal.SIGKILL)  # with nothing to do
        until(lambda: gone(pid_of(service)))
        service.start(3, state_at(3))
        service.wait()
        assert list(service.results) == [1, 2, 3] and len(reports) == 2
    assert len(names(tmp_path, "best")) == 2


@pytest.mark.usefixtures("quick")
def test_one_that_kills_its_process_is_given_up(tmp_path: Path, reports: list[str]) -> None:
    """And so is another one; the deaths of one are not counted against the next."""
    with make(tmp_path, options_of(), report=reports.append) as service:
        for step, act in ((1, "kill twice"), (2, "kill"), (3, "kill"), (5, "")):
            service.start(step, state_at(step, act=act, where=str(tmp_path / "death")))
        service.wait()
        assert list(service.results) == steps_in(tmp_path) == [1, 5]
    assert len(reports) == 8
    for step, lines in ((1, reports[:2]), (2, reports[2:5]), (3, reports[5:])):
        died = f"the process for the evaluation at step {step} died (exit code -9); "
        assert lines == ([died + "restarting it"] * 2 + [died + "giving up after 3 attempts"])[: len(lines)]
    assert not names(tmp_path, "pending")
    assert names(tmp_path, "best") == ["best-000000001.json", "best-000000001.pt"]


@pytest.mark.usefixtures("quick")
def test_one_that_hangs_is_cut(tmp_path: Path) -> None:
    """Whether it is asleep or stopped; the next one comes all the same."""
    options, reports = options_of(timeout=0.5), []

    def report(line: str) -> None:
        reports.append(line)
        options.timeout = 60.0 if "given up" in line else 0.5

    with make(tmp_path, options, report=report) as service:
        service.start(1, state_at(1, act="hang", where=str(tmp_path / "pid")))
        service.start(2, state_at(2))
        first = pid_of(service)
        os.kill(first, signal.SIGSTOP)
        before, work = time.monotonic(), time.process_time()
        service.wait()
        assert 1.4 < time.monotonic() - before < 20
        assert time.process_time() - work < 1  # it does not spin
        assert list(service.results) == [2]
        until(lambda: gone(first))
    cut = "the process for the evaluation at step 1 gave no answer in 0.5 s; "
    assert reports == [cut + "restarting it"] * 2 + [cut + "giving up after 3 attempts"]


@pytest.mark.parametrize(("trained", "best"), [(0, [0]), (1, [3]), (4, [5])])
def test_what_is_untrained_is_never_the_best(tmp_path: Path, trained: int, best: list[int]) -> None:
    with Evaluations(tmp_path, "eval", look, options_of(async_eval=False), -1, {}, print, trained) as service:
        for step in range(6):
            service.start(step, state_at(step))
    assert names(tmp_path, "best") == [f"best-{step:09d}{suffix}" for step in best for suffix in (".json", ".pt")]
