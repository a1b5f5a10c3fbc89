"""Snapshots and other checkpoints of every program that trains a model, played by the number of their update."""

import shutil
from pathlib import Path

import pytest
import torch
from harness import done, run
from toy import assert_same

import icrl
from icrl.contracts import ConfigError
from icrl.runs.files import read_json

# Of 4 windows each: every 2 updates.
SNAPSHOTS = ("checkpoints.snapshot_interval=7", "checkpoints.keep_last=1", "trainer.evaluate=false")
TRIALS = (
    *("finetune.trial_steps=8", "finetune.num_iterations=6", "finetune.num_mini_batches=1"),
    "finetune.num_streams=8",
)
LAST = ("evaluation.checkpoint=last",)


@pytest.fixture(scope="module")
def trained(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root with snapshots of the training of a model; only to be read."""
    root = tmp_path_factory.mktemp("snapshots")
    shutil.copytree(finished / "histories", root / "histories")
    done("train_gpt", root, *SNAPSHOTS, *LAST)
    return root


@pytest.mark.parametrize(
    ("folder", "player"),
    [("gpt", ()), pytest.param("finetuned", ("policy.model=finetuned", *TRIALS), marks=pytest.mark.long)],
)
def test_a_snapshot_is_played_whether_its_run_is_finished_or_not(trained, tmp_path, folder, player):
    root = Path(shutil.copytree(trained, tmp_path / "root"))
    options = (*LAST, *player, "trainer.evaluate=false")
    logs = root / "logs/tiny"
    if player:
        done("finetune", root, *LAST, *TRIALS, "trainer.evaluate=false", "checkpoints.snapshot_interval=48")
    snapshots = sorted(int(path.stem.rpartition("-")[2]) for path in (logs / folder).glob("snapshot-*.pt"))
    assert snapshots == [2, 4, 6]
    done("evaluate", root, *options)
    (last,) = logs.glob("evaluation*/results.json")
    (logs / folder / "finished.json").unlink()
    done("evaluate", root, *options, "evaluation.checkpoint=2")
    (path,) = logs.glob("evaluation*-update=2/results.json")
    early, late, sidecar = map(read_json, (path, last, logs / folder / "snapshot-000000002.json"))
    assert early["checkpoint"] == sidecar["state_sha256"] and early["curves"] != late["curves"]
    refused = run("evaluate", root, *options, "evaluation.checkpoint=5").refusal
    assert refused.startswith("evaluation.checkpoint=5: ") and "has checkpoints of the updates 2, 4, 6;" in refused


@pytest.mark.parametrize("is_finished", [True, False])
def test_a_snapshot_is_loaded_by_the_library(trained, tmp_path, is_finished):
    logs = Path(shutil.copytree(trained / "logs/tiny", tmp_path / "tiny"))
    if not is_finished:
        (logs / "gpt/finished.json").unlink()
        with pytest.raises(ConfigError, match="no finished training in "):
            icrl.load(logs)
    policy = icrl.load(logs, checkpoint=2)
    weights = torch.load(logs / "gpt/snapshot-000000002.pt", weights_only=True)["model"]
    assert_same(dict(policy.policy.model.state_dict()), dict(weights))
    with pytest.raises(ConfigError, match="evaluation.checkpoint=3: "):
        icrl.load(logs, checkpoint=3)
