"""Stages two and three with a recurrent trunk: a killed run."""

from pathlib import Path

import pytest
from harness import done, kill_late, results_of

from icrl.runs.files import read_json


@pytest.mark.parametrize("trunk", ["delta", "gru"])
def test_a_continued_run_ends_with_the_same_bits_and_its_model_acts(root: Path, trunk: str) -> None:
    options = ("name=recurrent", "histories=tiny", "run=recurrent", f"model.trunk={trunk}", "optimizer=muon")
    done("train_gpt", root, *options)
    undisturbed = results_of(root)
    kill_late(root / "logs/recurrent/gpt", 4)
    done("train_gpt", root, *options)
    assert results_of(root) == undisturbed
    done("evaluate", root, *options, "evaluation.ablations=true")
    found = read_json(root / "logs/recurrent/evaluation/results.json")
    assert set(found["ablations"]) == {"blank", "shuffled", "wiped", "other_task"}


def test_trials_start_from_random_weights(root: Path) -> None:
    """With a GRU this is RL^2."""
    scratch = ("finetune.start=none", "finetune.kl_coefficient=0", "finetune.trial_steps=8", "model.trunk=gru")
    small = ("finetune.num_iterations=2", "finetune.num_epochs=1", "finetune.num_mini_batches=3")
    done("finetune", root, *scratch, *small, "name=recurrent", "run=recurrent", "histories=tiny")
    assert (root / "logs/recurrent/finetuned/finished.json").exists()
