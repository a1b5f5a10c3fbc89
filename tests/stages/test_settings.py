"""Settings of the services around training, seen through whole stages: what is evaluated, kept, shown, put aside."""

import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from harness import TINY, results_of, run
from installed import needs
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from toy import steps_of

from icrl import extensions
from icrl.app.compose import load_config
from icrl.evaluation.trained import InContextEvaluator
from icrl.recording import record
from icrl.runs.files import read_json
from icrl.sources.a2c import A2C

if "source_evaluations" in extensions.NAMES:
    from icrl.extensions.source_evaluations.plugin import SourceEvaluator

SOURCE = "logs/tiny/source"
FOLDERS = {"train_agents": (SOURCE, "histories/"), "train_gpt": ("logs/tiny/gpt",)}
UNEVALUATED = ("trainer.evaluate=false", "evaluation.checkpoint=last")
STEPS = 10  # env steps of a learner in an iteration
of_agents = needs("source_evaluations")


@pytest.fixture
def rooms(finished: Path, tmp_path: Path) -> dict[str, Path]:
    """A root for each stage, with what it needs of those before it."""
    shutil.copytree(finished / "histories", tmp_path / "gpt/histories")
    return {"train_agents": tmp_path / "agents", "train_gpt": tmp_path / "gpt"}


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stage one without the pictures at its end."""
    monkeypatch.setattr(record, "examine", lambda *_: {"num_tasks": 5, "unsolved": []})


def done(stage: str, root: Path, *options: str) -> Path:
    """Run a stage to its end; returns the folder with its logs."""
    outcome = run(stage, root, *options)
    assert outcome.code == 0, outcome
    return root / FOLDERS[stage][0]


def state_in(root: Path, stage: str) -> dict[str, Any]:
    """Of the newest checkpoint, to be compared bit for bit."""
    return results_of(root)[f"{FOLDERS[stage][0]}/last.pt"][1]


def evaluations_in(folder: Path) -> dict[int, dict[str, Any]]:
    return {entry.pop("step"): entry for entry in read_json(folder / "evaluations.json")["evaluations"]}


@pytest.mark.parametrize(
    ("stage", "prefix", "last"),
    [pytest.param("train_agents", "evaluation", 6 * STEPS, marks=of_agents), ("train_gpt", "in_context", 6)],
)
def test_what_evaluations_leave(finished, stage, prefix, last):
    """At the start, in the middle and at the end, over env steps of a learner or updates: numbers, curves of them, and
    the best state, which is worth what was said of it."""
    folder = finished / FOLDERS[stage][0]
    known = evaluations_in(folder)
    assert [*known] == [0, last // 2, last]
    curves = EventAccumulator(str(folder / "evals")).Reload()
    assert set(curves.Tags()["scalars"]) == {f"{prefix}/{name}" for name in known[0]["metrics"]}
    for name in known[0]["metrics"]:
        expected = [(step, pytest.approx(entry["metrics"][name])) for step, entry in known.items()]
        assert [(point.step, point.value) for point in curves.Scalars(f"{prefix}/{name}")] == expected
    best = max([*known][1:], key=lambda step: (known[step]["score"], step))
    assert steps_of(folder, "best") == [best] and not steps_of(folder, "pending")
    config = load_config([*TINY, f"root={finished}"])
    tasks = json.loads((finished / "histories/tiny/manifest.json").read_text())["tasks"]
    look: Any = InContextEvaluator(config, tasks["train"][-2:])
    if stage == "train_agents":
        look = SourceEvaluator(config, tasks["train"])
    (state,) = (torch.load(path, weights_only=True) for path in folder.glob("best-*.pt"))
    assert look(state)._asdict() == known[best]


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("stage", "options", "state"),
    [
        pytest.param("train_agents", ("source.evaluate=false",), "learner", marks=of_agents),
        ("train_gpt", UNEVALUATED, "model"),
    ],
    ids=FOLDERS,
)
def test_without_evaluations_there_are_none_and_all_else_is_the_same(finished, rooms, stage, options, state):
    """Then their settings may change between two sessions; else they may not."""
    folder = done(stage, rooms[stage], *options)
    assert not (folder / "evaluations.json").exists() and not (folder / "evals").exists()
    assert not steps_of(folder, "best") and steps_of(folder, "last") == [4, 6]
    ours, theirs = results_of(rooms[stage]), results_of(finished)
    assert state_in(rooms[stage], stage)[state] == state_in(finished, stage)[state]
    assert all(ours[name] == theirs[name] for name in theirs if name.endswith(".npy"))
    assert run(stage, rooms[stage], *options, "evals.eval_interval=5").code == 0
    assert "evals.eval_interval=3" in run(stage, finished, "evals.eval_interval=5").refusal


def failing(method: Callable[..., Any], at: int) -> Callable[..., Any]:
    calls = itertools.count(1)

    def fail(*arguments: Any) -> Any:
        if next(calls) == at:
            raise RuntimeError("mine")
        return method(*arguments)

    return fail


def test_a_crash_is_put_aside_and_the_same_command_goes_on(finished, tmp_path, monkeypatch):
    """In the update after the third, and again when it goes on from the last good checkpoint, that of the second. Stage
    two is in `training/test_fit.py`."""
    folder, update = tmp_path / SOURCE, A2C.update
    for call in (4, 2):
        monkeypatch.setattr(A2C, "update", failing(update, call))
        with pytest.raises(RuntimeError, match="mine"):
            run("train_agents", tmp_path)
        assert steps_of(folder, "last") == [2] and steps_of(folder, "crash") == [3]
        for number, file in enumerate(sorted(folder.glob("crash-*"))):
            assert number or json.loads(file.read_text())["description"]["error"].endswith("RuntimeError: mine\n")
            file.unlink()
    monkeypatch.setattr(A2C, "update", update)
    done("train_agents", tmp_path)
    ours, theirs = results_of(tmp_path), results_of(finished)
    assert ours == {name: found for name, found in theirs.items() if name.startswith(FOLDERS["train_agents"])}
