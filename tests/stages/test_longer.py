"""Longer training of a finished run: the bits of a run in one go, or a refusal that names the schedule in the way."""

import shutil
from pathlib import Path

import pytest
import torch
from harness import done, files_of, kill_late, refusal, run
from toy import plain, steps_of

from icrl.contracts import Json
from icrl.runs.checkpoint import load_newest
from icrl.runs.files import read_json

CONSTANT = ("optimizer.learning_rate=0.01",)
DECAY = "optimizer.learning_rate={kind: linear, progress: updates, points: [[0, 0.01], [9, 0.001]]}"
LONGER, SHORTER = "trainer.num_iterations=6", "trainer.num_iterations=4"
FOLDER = "logs/tiny/gpt"
TRIALS = (
    *("finetune.trial_steps=8", "finetune.num_mini_batches=3"),
    *("finetune.learning_rate=0.01", "finetune.entropy_coefficient=0.01"),
)


@pytest.fixture
def fresh(finished: Path, tmp_path: Path) -> Path:
    """A root with histories."""
    shutil.copytree(finished / "histories", tmp_path / "fresh/histories")
    return tmp_path / "fresh"


def state_of(folder: Path) -> Json:
    found = load_newest(folder, "last", torch.device("cpu"))
    assert found
    return plain(found[0])


def test_an_extended_run_has_the_bits_of_one_in_one_go(fresh, tmp_path):
    """With dropout, mixed precision and accumulation; also if it is extended twice. A finished run is not shortened; an
    unfinished one may be, and then be extended."""
    whole = Path(shutil.copytree(fresh, tmp_path / "whole"))
    done("train_gpt", whole, LONGER, DECAY)
    for length in ("trainer.num_iterations=3", SHORTER, LONGER):
        done("train_gpt", fresh, length, DECAY)
    assert state_of(fresh / FOLDER) == state_of(whole / FOLDER)
    before = files_of(fresh)
    assert "is at update 6, beyond the 4 of this configuration" in run("train_gpt", fresh, SHORTER, DECAY).refusal
    after = files_of(fresh)
    assert all(after[name] == before[name] for name in before)
    kill_late(fresh / FOLDER, 2)
    done("train_gpt", fresh, SHORTER, DECAY)
    assert steps_of(fresh / FOLDER) == [2, 4]
    done("train_gpt", fresh, LONGER, DECAY)
    assert state_of(fresh / FOLDER) == state_of(whole / FOLDER)
    evaluated = read_json(fresh / FOLDER / "evaluations.json")["evaluations"]
    assert [entry["step"] for entry in evaluated] == [0, 3, 4, 6] and steps_of(fresh / FOLDER) == [4, 6]


def test_the_schedule_in_the_way_is_named(finished):
    message = refusal("train_gpt", finished, "trainer.num_iterations=12")
    assert "made with trainer.num_iterations=6, and the schedule optimizer.learning_rate={'kind': 'cosine'" in message
    assert "give trainer.num_iterations=6 here too, or another name=" in message


def test_a_refused_extension_leaves_a_finished_run_as_it_was(fresh):
    done("train_gpt", fresh, SHORTER, *CONSTANT)
    evaluations, finished = (fresh / FOLDER / name for name in ("evaluations.json", "finished.json"))
    whole, before = evaluations.read_bytes(), finished.read_bytes()
    evaluations.write_bytes(whole[:-9])
    assert "evaluations.json" in run("train_gpt", fresh, LONGER, *CONSTANT).refusal
    assert finished.read_bytes() == before
    evaluations.write_bytes(whole)
    done("train_gpt", fresh, LONGER, *CONSTANT)
    assert steps_of(fresh / FOLDER)[-1] == 6


def test_models_before_and_after_are_evaluated_each_in_its_own_folder(fresh):
    done("train_gpt", fresh, SHORTER, *CONSTANT)
    done("evaluate", fresh, SHORTER, *CONSTANT, "evaluation.checkpoint=last")
    done("train_gpt", fresh, LONGER, *CONSTANT)
    last = (LONGER, *CONSTANT, "evaluation.checkpoint=last")
    assert "holds results of another model: give another name=" in refusal("evaluate", fresh, *last)
    assert "held-out tasks solved" in done("evaluate", fresh, *last, "name=longer", "run=tiny", "histories=tiny")
    assert SHORTER.partition("=")[0] in refusal("evaluate", fresh, *last, SHORTER, "name=other", "run=tiny")


def test_trials_can_be_extended(root, tmp_path):
    whole = Path(shutil.copytree(root, tmp_path / "whole"))
    done("finetune", whole, *TRIALS, "finetune.num_iterations=2")
    done("finetune", root, *TRIALS, "finetune.num_iterations=1")
    done("finetune", root, *TRIALS, "finetune.num_iterations=2")
    assert state_of(root / "logs/tiny/finetuned") == state_of(whole / "logs/tiny/finetuned")
    schedule = "finetune.bonus={kind: linear, progress: percent, points: [[0, 1], [1, 0]]}"
    other = (*TRIALS, schedule, "name=other", "run=tiny", "histories=tiny")
    done("finetune", root, *other, "finetune.num_iterations=1")
    assert "the schedule finetune.bonus={" in refusal("finetune", root, *other, "finetune.num_iterations=2")
    assert "updates of other are done" in done("finetune", root, *other, "finetune.num_iterations=1", LONGER)
