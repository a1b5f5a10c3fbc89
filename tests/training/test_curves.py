"""Curves of the gradient loop."""

from pathlib import Path
from typing import Any

import pytest
from tensorboard.compat.tensorflow_stub.io.gfile import LocalFileSystem
from toy import config_of, curves, events_of, run

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
