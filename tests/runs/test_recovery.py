"""A run that is asked to stop, or fails: what is saved, and that nothing good is lost for it."""

import builtins
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from toy import CPU, SEED, batch_at, config_of, doing, dying, left_in, model_of, run, steps_of, weights_of

from icrl.contracts import Batch, ConfigError, PipelineError, Stopped
from icrl.runs import checkpoint
from icrl.runs import recovery as module
from icrl.runs.recovery import Recovery

BOTH = (signal.SIGTERM, signal.SIGUSR2)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Whatever a test does, a signal that is left over must not end the tests."""
    before = [signal.getsignal(number) for number in BOTH]
    yield
    assert [signal.getsignal(number) for number in BOTH] == before


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    run(folder)
    return folder


def send(number: int) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


def at_the_terminal(monkeypatch: pytest.MonkeyPatch, answer: str | BaseException) -> list[str]:
    """Somebody who gives this answer; returns what they are asked."""
    asked: list[str] = []

    def ask(question: str) -> str:
        asked.append(question)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(builtins, "input", ask)
    return asked


def fail(on_crash: str, error: BaseException, save_crash: Callable[[str], None] | None = None) -> list[str]:
    """Raise within the context; returns what was given to be saved."""
    saved: list[str] = []
    with pytest.raises(type(error), match="mine") as caught, Recovery(on_crash, save_crash or saved.append):
        raise error
    assert caught.value is error
    return saved


def test_signals_are_noted_and_answered_between_iterations() -> None:
    with Recovery("save", lambda _: None) as recovery:
        assert (recovery.save_now, recovery.stop_now) == (False, False)
        send(signal.SIGUSR2)()
        assert (recovery.save_now, recovery.stop_now) == (True, False)
        recovery.saved("update 3", stop=False)
        assert (recovery.save_now, recovery.stop_now) == (False, False)
        send(signal.SIGTERM)()
        assert (recovery.save_now, recovery.stop_now) == (True, True)
        with pytest.raises(Stopped, match="SIGTERM: update 4 is saved; the same command continues"):
            recovery.saved("update 4", stop=True)


def test_a_sigterm_that_comes_while_another_request_is_answered_is_not_lost() -> None:
    with Recovery("save", lambda _: None) as recovery:
        send(signal.SIGUSR2)()
        stop = recovery.stop_now
        send(signal.SIGTERM)()
        recovery.saved("update 3", stop)
        assert (recovery.save_now, recovery.stop_now) == (True, True)


@pytest.mark.parametrize("error", [None, ValueError("mine"), KeyboardInterrupt("mine")], ids=str)
def test_handlers_are_put_back(error: BaseException | None) -> None:
    before = [signal.signal(number, handler) for number, handler in zip(BOTH, (print, signal.SIG_IGN), strict=True)]
    try:
        if error:
            fail("skip", error)
        else:
            with Recovery("skip", lambda _: None):
                assert signal.getsignal(signal.SIGTERM) is not print
        assert [signal.getsignal(number) for number in BOTH] == [print, signal.SIG_IGN]
    finally:
        for number, handler in zip(BOTH, before, strict=True):
            signal.signal(number, handler)


def test_another_thread_trains_without_handlers(tmp_path: Path) -> None:
    seen: list[Any] = []
    config = config_of(trainer={"num_iterations": 2, "evaluate": False})

    def batches(update: int) -> Batch:
        seen.append([signal.getsignal(number) for number in BOTH])
        return batch_at(update)

    thread = threading.Thread(target=run, args=(tmp_path, config, model_of(0), batches))
    thread.start()
    thread.join()
    assert seen == [[signal.getsignal(number) for number in BOTH]] * 2
    assert steps_of(tmp_path) == [2]


def test_save_and_skip() -> None:
    (text,) = fail("save", ValueError("mine"))
    assert text.startswith("Traceback") and text.endswith("ValueError: mine\n") and "in fail" in text
    assert fail("skip", ValueError("mine")) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, PipelineError, ConfigError, Stopped, OSError, SystemExit])
def test_what_is_no_crash_saves_nothing(error: type[BaseException]) -> None:
    assert fail("save", error("mine")) == []


@pytest.mark.parametrize(
    ("answer", "expected"),
    [("y", 1), (" YES ", 1), ("n", 0), ("", 0), ("yeah", 0), (EOFError(), 0), (KeyboardInterrupt(), 0)],
    ids=repr,
)
def test_ask(monkeypatch: pytest.MonkeyPatch, answer: str | BaseException, expected: int) -> None:
    """With no answer nothing is saved, and the error is what is seen."""
    asked = at_the_terminal(monkeypatch, answer)
    assert len(fail("ask", ValueError("mine"))) == expected
    assert asked == ["ValueError: mine\nSave the state of the failed run? [y/n] "]
    assert fail("ask", KeyboardInterrupt("mine")) == [] and len(asked) == 1


@pytest.mark.parametrize("refusal", [PipelineError("disk full"), OSError("disk full"), RuntimeError("no such GPU")])
def test_the_first_error_is_the_one_to_be_seen(capsys: pytest.CaptureFixture[str], refusal: Exception) -> None:
    def refuse(_: str) -> None:
        raise refusal

    fail("save", ValueError("mine"), refuse)
    assert f"the state of the failed run cannot be saved: {refusal}" in capsys.readouterr().err


def test_a_crash_is_put_aside_and_no_run_goes_on_from_it(tmp_path: Path, undisturbed: Path) -> None:
    with pytest.raises(RuntimeError, match="mine"):
        run(tmp_path, batches=dying(8, RuntimeError))
    assert steps_of(tmp_path) == [3, 6] and steps_of(tmp_path, "crash") == [8]
    state, sidecar = checkpoint.load_newest(tmp_path, "crash", CPU)
    assert state["step"] == 8 and sidecar["description"]["about"] == "toy"
    assert sidecar["description"]["error"].endswith("RuntimeError: mine\n")
    assert not torch.equal(state["model"]["1.weight"], weights_of(tmp_path)["1.weight"])
    asked: list[int] = []
    run(tmp_path, model=model_of(99), batches=lambda update: asked.append(update) or batch_at(update))
    assert asked == [*range(6, 11)]
    assert left_in(tmp_path) | {"crash": None} == left_in(undisturbed)


def test_a_crash_is_not_saved_by_those_who_do_not_write(tmp_path: Path) -> None:
    """Nor are they asked: theirs is not the terminal."""

    class Second(module.Recovery):
        def __init__(self, on_crash: str, save_crash: Callable[[str], None]) -> None:
            kinds.append(on_crash)
            super().__init__(on_crash, save_crash)

    kinds: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("icrl.training.fit.Recovery", Second)
        patch.setattr("icrl.runs.distributed.Ranks.is_writer", False)
        with pytest.raises(RuntimeError, match="mine"):
            run(tmp_path, config_of(checkpoints={"on_crash": "ask"}), batches=dying(2, RuntimeError))
    assert kinds == ["skip"] and not [*tmp_path.iterdir()]


@pytest.mark.parametrize("update", [0, 4, 10])
def test_sigterm_saves_and_ends(tmp_path: Path, undisturbed: Path, update: int) -> None:
    with pytest.raises(Stopped, match=f"SIGTERM: update {update + 1} of 11 is saved"):
        run(tmp_path, batches=doing(send(signal.SIGTERM), update))
    assert steps_of(tmp_path)[-1] == update + 1 and not steps_of(tmp_path, "crash")
    run(tmp_path, model=model_of(99))
    assert left_in(tmp_path) == left_in(undisturbed)


def test_sigusr2_saves_and_goes_on(tmp_path: Path, undisturbed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept: list[list[int]] = []

    def batches(update: int) -> Batch:
        kept.append(steps_of(tmp_path))
        if update == 4:
            send(signal.SIGUSR2)()
        return batch_at(update)

    run(tmp_path, batches=batches)
    assert kept[4] == [3] and kept[5] == [3, 5]
    assert capsys.readouterr().out.count("SIGUSR2: update 5 of 11 is saved") == 1
    assert left_in(tmp_path) == left_in(undisturbed)


@pytest.mark.parametrize("number", BOTH)
def test_a_signal_before_the_first_update(
    tmp_path: Path, undisturbed: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Says the truth too: the start is saved."""

    class Prompt(module.Recovery):
        def __enter__(self) -> "Prompt":
            super().__enter__()
            send(number)()
            return self

    with monkeypatch.context() as patch:
        patch.setattr("icrl.training.fit.Recovery", Prompt)
        with pytest.raises((Stopped, KeyboardInterrupt)):
            run(tmp_path, batches=dying(0))
    assert steps_of(tmp_path) == [0]
    run(tmp_path, model=model_of(99))
    assert left_in(tmp_path) == left_in(undisturbed)


def test_a_signal_amid_a_checkpoint_leaves_it_whole(
    tmp_path: Path, undisturbed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync, calls = os.fsync, []

    def interrupted(file: int) -> None:
        calls.append(file)
        send(signal.SIGTERM)()
        fsync(file)

    def batches(update: int) -> Batch:
        monkeypatch.setattr(os, "fsync", interrupted if update == 2 else fsync)  # the next is the checkpoint of 3
        return batch_at(update)

    with pytest.raises(Stopped, match="update 4 of 11 is saved"):
        run(tmp_path, batches=batches)
    assert calls and steps_of(tmp_path) == [3, 4]
    for sidecar in checkpoint.sidecars(tmp_path, "last"):
        checkpoint.load(sidecar, CPU)
    monkeypatch.setattr(os, "fsync", fsync)
    run(tmp_path, model=model_of(99))
    assert left_in(tmp_path) == left_in(undisturbed)


def test_a_resumed_run_that_is_stopped_at_once_saves_nothing_anew(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, batches=dying(4))
    before = (tmp_path / "last-000000003.pt").stat().st_mtime_ns

    class Prompt(module.Recovery):
        def __enter__(self) -> "Prompt":
            super().__enter__()
            send(signal.SIGTERM)()
            return self

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("icrl.training.fit.Recovery", Prompt)
        with pytest.raises(Stopped, match="update 3 of 11 is saved"):
            run(tmp_path, model=model_of(SEED), batches=dying(3))
    assert (tmp_path / "last-000000003.pt").stat().st_mtime_ns == before
