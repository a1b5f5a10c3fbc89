"""Programs of offline RL as stages: recorded numbers, snapshots, longer runs, and no leak of held-out tasks."""

import shutil
from pathlib import Path

import pytest
import torch
from harness import TINY, done, refusal
from torch import Tensor, load

from icrl import extensions
from icrl.extensions.offline_rl.programs import train_ilql
from icrl.runs import checkpoint, device
from icrl.runs.files import read_json

CPU = torch.device("cpu")
GOLDEN = {
    "ilql.norm": 47.24363015295476,
    "ilql.largest": 2.83192968612506,
    "awr.norm": 12.445012540921757,
    "awr.largest": 2.8303861635478973,
}
LAST = ("evaluation.checkpoint=last", "trainer.evaluate=false")
NEW = ("name=new", "histories=tiny")


def test_a_tiny_run_has_the_recorded_numbers(root: Path) -> None:
    found = {}
    for program, folder in (("train_ilql", "ilql"), ("extract_policy", "awr")):
        done(program, root)
        loaded = checkpoint.load_newest(root / "logs/tiny" / folder, "last", CPU)
        assert loaded
        tensors = [one for one in loaded[0]["model"].values() if isinstance(one, Tensor) and one.is_floating_point()]
        norms = [float(tensor.double().norm()) for tensor in tensors]
        found |= {f"{folder}.norm": sum(norms), f"{folder}.largest": max(norms)}
    assert found == pytest.approx(GOLDEN, rel=0.01)


def test_a_snapshot_of_a_critic_and_of_an_extracted_policy_is_played(root: Path) -> None:
    snapshots, logs = ("checkpoints.snapshot_interval=8", *LAST), root / "logs/tiny"
    for program, folder, player in (
        ("train_ilql", "ilql", ("policy.model=critic", "policy.advantage_scale=1")),
        ("extract_policy", "awr", ("policy.model=awr",)),
    ):
        done(program, root, *snapshots)
        assert [checkpoint.step_of(path) for path in sorted((logs / folder).glob("snapshot-*.pt"))] == [2, 4, 6]
        (logs / folder / "finished.json").rename(logs / f"{folder}.json")
        done("evaluate", root, *LAST, *player, "evaluation.checkpoint=2")
        (logs / f"{folder}.json").rename(logs / folder / "finished.json")
        (found,) = logs.glob(f"evaluation*policy={player[0].partition('=')[2]}*-update=2/results.json")
        sidecar = read_json(logs / folder / "snapshot-000000002.json")
        assert read_json(found)["checkpoint"] == sidecar["state_sha256"]


@pytest.mark.parametrize(
    ("program", "folder", "budget"),
    [
        ("train_ilql", "ilql", "trainer.num_iterations"),
        pytest.param("extract_policy", "awr", "awr.num_epochs", marks=pytest.mark.long),
    ],
)
def test_a_run_can_be_extended(root: Path, tmp_path: Path, program: str, folder: str, budget: str) -> None:
    constant = ("optimizer.learning_rate=0.001",)
    if program == "extract_policy":
        done("train_ilql", root)
    whole = Path(shutil.copytree(root, tmp_path / "whole"))
    done(program, whole, *constant, f"{budget}=2")
    done(program, root, *constant, f"{budget}=1")
    done(program, root, *constant, f"{budget}=2")
    ours, theirs = (checkpoint.load_newest(one / "logs/tiny" / folder, "last", CPU) for one in (root, whole))
    assert ours and theirs and ours[0]["step"] == theirs[0]["step"]
    for name, value in ours[0]["model"].items():
        assert torch.equal(value, theirs[0]["model"][name]), name


@pytest.mark.skipif("recurrent" not in extensions.NAMES, reason="the layer is an extension")
def test_a_critic_is_recurrent_like_the_model(root: Path) -> None:
    encoder = ("encoder.embed_dim=8", "encoder.num_layers=1", "encoder.num_heads=2", "encoder.ff_dim=16")
    options = ("name=recurrent", "histories=tiny", "model.trunk=gru", *encoder, "device.amp_dtype=none")
    done("train_ilql", root, *options)
    newest = max((root / "logs/recurrent/ilql").glob("last-*.pt"))
    assert any("attention.gru" in name for name in load(newest, weights_only=True)["model"])


def test_too_large_heads_are_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "free_memory", lambda _: 10**8)
    heads = ("decoder.num_layers=1000", "decoder.ff_dim=1024")
    assert refusal("train_ilql", root, *NEW, *heads, preset=TINY).startswith("decoder.num_layers=1000 x deco")


def test_the_value_of_a_run_in_a_search_is_its_last_score(root: Path) -> None:
    done("train_ilql", root)
    folder = root / "logs/tiny/ilql"
    found = read_json(folder / "evaluations.json")["evaluations"][-1]["score"]
    assert train_ilql.value(folder, train_ilql.OPTIONS.model_construct()) == found


@pytest.mark.parametrize("model", ["gpt", "critic"])
def test_only_a_sequence_model_by_itself_is_exported(root: Path, model: str) -> None:
    done("train_ilql", root)
    options = (f"policy.model={model}", "policy.advantage_scale=1")
    assert "only a sequence model by itself is exported" in refusal("export_model", root, *options, preset=TINY)
