"""`src.pipeline` beside the programs: one after the other they leave the same, from any point on; where two processes
train together."""

import itertools
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from harness import refusal, run
from toy import assert_same, weights_of

from icrl.app.compose import load_config
from icrl.data.history_store import open_histories
from icrl.programs import pipeline
from icrl.runs import checkpoint, distributed
from icrl.runs.distributed import Ranks
from icrl.runs.files import read_json
from icrl.runs.processes import Worker

FILMED = "source.videos_per_task=1"


def left_in(root: Path) -> tuple[dict[str, str], list[torch.Tensor], dict, dict]:
    histories = open_histories(root / "histories/tiny").manifest["columns"]
    results = read_json(root / "logs/tiny/evaluation/results.json")
    numbers = {part: results[part] for part in ("final", "curves", "decodings", "ablations")}
    found = read_json(root / "logs/tiny/source/finished.json")
    return histories, [*weights_of(root / "logs/tiny/gpt").values()], numbers, found


def same(one: Path, other: Path) -> bool:
    (*first, found), (*second, again) = left_in(one), left_in(other)
    equal = all(map(torch.equal, first[1], second[1]))
    return first[0] == second[0] and equal and first[2] == second[2] and found["success"] == again["success"]


def test_the_pipeline_leaves_what_its_programs_leave(finished: Path, tmp_path: Path) -> None:
    outcome = run("pipeline", tmp_path, FILMED)
    assert outcome.code == 0, outcome
    assert "training tasks solved by all their agents" in outcome.out and "success on held-out tasks" in outcome.out
    (picture,) = [line.split()[-1] for line in outcome.out.splitlines() if line.startswith("look first")]
    short = r"in short +model, held-out tasks: success (\d\.\d\d) in episode 1, (\d\.\d\d) in the last quarter"
    found = read_json(tmp_path / "logs/tiny/evaluation/results.json")
    success = found["curves"]["model, held-out tasks"]["success"]["mean"]
    shown = re.search(short, outcome.out)
    assert shown and shown.groups() == (f"{success[0]:.2f}", f"{success[-1]:.2f}")
    assert Path(picture).read_bytes() and "evaluate  100%" in outcome.out
    assert "videos:" not in outcome.err  # the other process shows no bar
    assert same(tmp_path, finished)
    assert len([*(tmp_path / "videos/tiny/source").glob("*_agent_0.mp4")]) == 5
    assert run("pipeline", tmp_path, FILMED).out.splitlines()[-1] == outcome.out.splitlines()[-1]  # nothing is repeated
    assert "source.num_learners" in refusal("pipeline", tmp_path, "source.num_learners=2")


def test_agents_are_examined_by_whoever_comes_next(finished: Path, tmp_path: Path, monkeypatch) -> None:
    """The run ends in stage two: its agents were not examined, or were; the same command goes on."""
    with monkeypatch.context() as broken:
        broken.setattr("icrl.programs.train_gpt.main", lambda config: (_ for _ in ()).throw(KeyboardInterrupt))
        assert run("pipeline", tmp_path).code == 130
    assert run("pipeline", tmp_path).code == 0
    assert same(tmp_path, finished)


class Failing:
    """Worker whose job ends with an exception."""

    def __init__(self, function: object, *, idle: bool) -> None: ...

    def give(self, value: object) -> None: ...

    def answer(self, patience: float) -> str:
        return "Traceback\n  line 7\nOSError: the disk is full\n"

    def end(self) -> None: ...


def test_agents_that_cannot_be_examined_are_named(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("icrl.programs.pipeline.Worker", Failing)
    message = run("pipeline", tmp_path).refusal
    assert (
        "could not be examined; run icrl train-agents to do it again" in message
        and "OSError: the disk is full" in message
    )
    assert "solved by all their agents" in run("train_agents", tmp_path).out


TOLD = ("num_threads=4", "device=cpu")


@pytest.mark.parametrize(
    ("options", "processes", "threads"),
    [
        ((), [2, 2], [2, 2]),
        (("num_threads=2",), [2, 2], [1, 1]),
        (("num_threads=3",), [2, 2], [1, 1]),
        (("num_threads=1",), [1, 1], [1, 1]),
        (("trainer.mini_batch_size=18", "trainer.gradient_accumulation_steps=2"), [1, 2], [3, 2]),
        (("trainer.mini_batch_size=2",), [1, 2], [3, 2]),
        (("finetune.num_streams=3",), [2, 1], [2, 3]),
        (("finetune.num_streams=3", "finetune.num_tasks=23"), [2, 2], [2, 2]),
        (("finetune.num_mini_batches=205",), [2, 1], [2, 3]),
        (("policy.model=gpt",), [2], [2]),
        (("device.type=cuda",), [1, 1], [3, 3]),
    ],
)
def test_two_processes_train_together_where_they_can_share_the_work(options, processes, threads, monkeypatch) -> None:
    """The default recipe has 404 streams in 8 mini-batches, and 16 windows."""
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(pipeline, "in_ranks", lambda main, config, size: asked.append((size, config.num_threads)))
    monkeypatch.setattr("icrl.runs.device.torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("icrl.runs.device.torch.cuda.device_count", lambda: 1)
    for program in ("train_agents.record", "train_agents.announce", "evaluate.main", "set_forkserver_preload"):
        monkeypatch.setattr(f"icrl.programs.pipeline.{program}", lambda *_: None)
    monkeypatch.setattr(pipeline, "Worker", Done)
    before = torch.get_num_threads()
    pipeline.main(load_config([*TOLD, *options]))
    torch.set_num_threads(before)
    assert asked == [*zip(processes, threads, strict=True)]


class Done(Failing):
    """Worker that has done its job."""

    def answer(self, patience: float) -> dict[str, str]:
        return {"done": "yes"}


@pytest.fixture
def others(monkeypatch) -> Iterator[list[Worker]]:
    """Processes that train beside this one, in the order of their starts; they and this one have one thread each."""
    started, threads = list[Worker](), torch.get_num_threads()

    class Noted(Worker):
        def __init__(self, *given, **named) -> None:
            super().__init__(*given, **named)
            started.append(self)

    monkeypatch.setattr(distributed, "Worker", Noted)
    yield started
    torch.set_num_threads(threads)


@pytest.mark.long
def test_a_pipeline_of_two_processes_survives_a_lost_one_and_a_signal(others, tmp_path: Path, monkeypatch) -> None:
    """In both trainings: it says so, and the same command goes on to the bits of an undisturbed run."""
    options = ("num_threads=2", "policy.model=finetuned", "finetune.trial_steps=8", "finetune.num_iterations=2")
    options += ("finetune.num_mini_batches=3", FILMED)
    assert run("pipeline", tmp_path / "whole", *options).code == 0
    average = Ranks.average_gradients
    for training, end in itertools.product((1, 2), ("death", "signal")):
        first, updates = len(others), itertools.count()

        def disturbed(ranks: Ranks, model: torch.nn.Module) -> None:
            if len(others) == first + training and next(updates) == 3:  # noqa: B023 - called in this round alone
                others[-1].process.kill() if end == "death" else signal.raise_signal(signal.SIGTERM)  # noqa: B023
            average(ranks, model)

        with monkeypatch.context() as patch:
            patch.setattr(Ranks, "average_gradients", disturbed)
            outcome = run("pipeline", tmp_path / "disturbed", *options)
        if end == "death":
            assert outcome.refusal.startswith("process 1 of the training died (exit code -9); the same command")
        else:
            assert outcome.code == 143 and "SIGTERM: update " in outcome.err
    assert run("pipeline", tmp_path / "disturbed", *options).code == 0
    assert_same(*(trained_in(tmp_path / name) for name in ("whole", "disturbed")))


def trained_in(root: Path) -> list[object]:
    """Weights, states of both processes' generators, and results of a run of two processes."""
    found = [
        checkpoint.load_newest(root / f"logs/tiny/{name}", "last", torch.device("cpu")) for name in ("gpt", "finetuned")
    ]
    assert all(one and len(one[0]["generators"]["cpu"]) == 2 for one in found)
    results = read_json(root / "logs/tiny/evaluation-policy=finetuned/results.json")
    return [*((one[0]["model"], one[0]["generators"]) for one in found if one), results["final"], results["curves"]]
