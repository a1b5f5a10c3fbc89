"""Stages two and three with a recurrent trunk: a killed run, and a critic of the same kind."""

from pathlib import Path

import pytest
from harness import done, kill_late, results_of
from torch import load

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


def test_a_critic_is_recurrent_like_the_model(root: Path) -> None:
    encoder = ("encoder.embed_dim=8", "encoder.num_layers=1", "encoder.num_heads=2", "encoder.ff_dim=16")
    options = ("name=recurrent", "histories=tiny", "model.trunk=gru", *encoder, "device.amp_dtype=none")
    done("train_ilql", root, *options)
    newest = max((root / "logs/recurrent/ilql").glob("last-*.pt"))
    assert any("attention.gru" in name for name in load(newest, weights_only=True)["model"])
