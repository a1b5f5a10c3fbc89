"""Metrics of the gradient loop: every option has its effect, none changes the run."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tensorboard.compat.tensorflow_stub.io.gfile import LocalFileSystem
from toy import CPU, assert_same, batch_at, config_of, curves, events_of, model_of, run, values_of

from icrl.runs import checkpoint

BASE = {"train/loss", "train/accuracy", "train/gradient_norm", "train/learning_rate"}


def run_with(folder: Path, num_iterations: int = 4, **options: Any) -> Path:
    """A run without evaluations that shows every second update, unless told otherwise."""
    spaced = {"num_summaries": 0, "summary_interval": 2}
    run(folder, config_of(trainer={"num_iterations": num_iterations, "evaluate": False}, summaries=spaced | options))
    return folder


def test_points_are_on_disk_before_the_checkpoint_that_follows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or a kill after it would leave a gap. The disk is one that TensorBoard writes to only when it flushes."""
    save, seen = checkpoint.save, []

    def looked_at(folder: Path, kind: str, step: int, *arguments: Any) -> None:
        seen.append((step, [at for at, _ in curves(folder).get("train/loss", [])]))
        save(folder, kind, step, *arguments)

    monkeypatch.delattr(LocalFileSystem, "append")
    monkeypatch.setattr(checkpoint, "save", looked_at)
    run_with(tmp_path, 6, summary_interval=1)
    assert seen == [(3, [1, 2, 3]), (6, [*range(1, 7)])]


def test_nothing_else_is_shown_and_each_point_has_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = events_of(run_with(tmp_path))
    assert set(curves(tmp_path)) == BASE and found.Tags()["histograms"] == [] and not (tmp_path / "profile").exists()
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("train_gpt ")]
    assert len(lines) == 2 and all("  loss " in line and "  accuracy " in line for line in lines)


def test_details_and_profiles_change_nothing(tmp_path: Path) -> None:
    """Details are of the batch of the last update and the model after it, without dropout."""
    run_with(tmp_path / "off", summary_interval=0)
    found = events_of(run_with(tmp_path / "on", details=True, profiled_iterations=2))
    off, on = (checkpoint.load_newest(tmp_path / name, "last", CPU)[0] for name in ("off", "on"))
    assert torch.equal(off["generators"]["cpu"][0], on["generators"]["cpu"][0])
    assert_same(off["model"], on["model"])
    model = model_of(0).eval()
    model.load_state_dict(on["model"])
    logits = model(batch_at(3).obs).detach()
    chances = logits.softmax(-1).flatten(0, 1)
    entropy = -(chances * chances.log()).sum(-1)
    means = {f"probability_{action}": value for action, value in enumerate(chances.mean(0).tolist())}
    means["entropy"] = entropy.mean().item()
    assert {f"actions/{name}" for name in means} == {
        tag for tag in set(curves(tmp_path / "on")) - BASE if "actions" in tag
    }
    for name, value in means.items():
        assert values_of(tmp_path / "on", f"actions/{name}")[-1] == pytest.approx(value, abs=1e-5)
    expected = {"actions/entropies": entropy, "outputs/logits": logits}
    expected |= {f"data/{name}": column.float() for name, column in batch_at(3)._asdict().items()}
    parts = {f"{kind}/{name}" for kind in ("value", "gradient") for name, _ in model.named_parameters()}
    assert set(found.Tags()["histograms"]) == expected.keys() | parts
    for tag, values in expected.items():
        last = found.Histograms(tag)[-1]
        assert (last.step, last.histogram_value.num) == (4, values.numel()), tag
        assert last.histogram_value.sum == pytest.approx(values.sum().item(), abs=1e-3), tag
