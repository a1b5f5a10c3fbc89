"""All stages in one command, of which two processes share stage two and the trials."""

import itertools
import signal
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from harness import run
from toy import assert_same

from icrl.app.compose import load_config
from icrl.extensions.parallel.worker import Worker
from icrl.extensions.scaling.ranks import JoinedRanks, Together
from icrl.programs import pipeline
from icrl.runs import checkpoint
from icrl.runs.files import read_json

TOLD = ("num_threads=4", "device=cpu")


@pytest.mark.parametrize(
    ("options", "processes", "threads"),
    [
        ((), [2, 2], [2, 2]),
        (("num_threads=3",), [2, 2], [1, 1]),
        (("num_threads=1",), [1, 1], [1, 1]),
        (("trainer.mini_batch_size=18", "trainer.gradient_accumulation_steps=2"), [1, 2], [3, 2]),
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
    monkeypatch.setattr(Together, "in_ranks", lambda _, main, config, size: asked.append((size, config.num_threads)))
    monkeypatch.setattr("icrl.runs.device.torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("icrl.runs.device.torch.cuda.device_count", lambda: 1)
    for program in ("train_agents.record", "train_agents.print_results", "evaluate.main", "set_forkserver_preload"):
        monkeypatch.setattr(f"icrl.programs.pipeline.{program}", lambda *_: None)
    monkeypatch.setattr(pipeline, "POOLS", [Mock(begun=lambda *_: nullcontext(dict))])
    before = torch.get_num_threads()
    pipeline.main(load_config([*TOLD, *options]))
    torch.set_num_threads(before)
    assert asked == [*zip(processes, threads, strict=True)]


@pytest.fixture
def others(monkeypatch) -> Iterator[list[Worker]]:
    """Processes that train beside this one, in the order of their starts; they and this one have one thread each."""
    started, threads = list[Worker](), torch.get_num_threads()

    class Noted(Worker):
        def __init__(self, *given, **named) -> None:
            super().__init__(*given, **named)
            started.append(self)

    monkeypatch.setattr("icrl.extensions.scaling.ranks.Worker", Noted)
    yield started
    torch.set_num_threads(threads)


@pytest.mark.long
def test_a_pipeline_of_two_processes_survives_a_lost_one_and_a_signal(others, tmp_path: Path, monkeypatch) -> None:
    """In both trainings: it says so, and the same command goes on to the bits of an undisturbed run."""
    options = ("num_threads=2", "policy.model=finetuned", "finetune.trial_steps=8", "finetune.num_iterations=2")
    options += ("finetune.num_mini_batches=3", "source.videos_per_task=1")
    assert run("pipeline", tmp_path / "whole", *options).code == 0
    average = JoinedRanks.average_gradients
    for training, end in itertools.product((1, 2), ("death", "signal")):
        first, updates = len(others), itertools.count()

        def disturbed(ranks: JoinedRanks, model: torch.nn.Module) -> None:
            if len(others) == first + training and next(updates) == 3:  # noqa: B023 - called in this round alone
                others[-1].process.kill() if end == "death" else signal.raise_signal(signal.SIGTERM)  # noqa: B023
            average(ranks, model)

        with monkeypatch.context() as patch:
            patch.setattr(JoinedRanks, "average_gradients", disturbed)
            outcome = run("pipeline", tmp_path / "disturbed", *options)
        if end == "death":
            assert outcome.refusal.startswith("process 1 of the training died (exit code -9); the same command")
        else:
            assert outcome.code == 143 and "SIGTERM: update " in outcome.err
    assert run("pipeline", tmp_path / "disturbed", *options).code == 0
    assert not [*tmp_path.rglob("crash-*")]
    assert_same(*(trained_in(tmp_path / name) for name in ("whole", "disturbed")))


def trained_in(root: Path) -> list[object]:
    """Weights, states of both processes' generators, and results of a run of two processes."""
    found = [
        checkpoint.load_newest(root / f"logs/tiny/{name}", "last", torch.device("cpu")) for name in ("gpt", "finetuned")
    ]
    assert all(one and len(one[0]["generators"]["cpu"]) == 2 for one in found)
    results = read_json(root / "logs/tiny/evaluation-policy=finetuned/results.json")
    return [*((one[0]["model"], one[0]["generators"]) for one in found if one), results["final"], results["curves"]]
