"""Metrics of a run: points and log lines, read back with TensorBoard's own reader."""

import errno
import io
import math
import re
import sys
import time
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from tensorboard.summary.writer.record_writer import RecordWriter

from icrl.contracts import ConfigError, PipelineError
from icrl.runs import writers
from icrl.runs.metrics import CurvesConfig, MetricLogger
from icrl.runs.processes import Progress
from icrl.runs.writers import Writer, writer, writer_classes


def test_all_kinds_of_events(tmp_path):
    """Each curve has the steps it was given; histograms are of the finite numbers."""
    distributions = {
        "mixed": torch.tensor([[1.0, math.nan], [-math.inf, 3.0]]),
        "half": torch.tensor([0.5, 2.0], dtype=torch.bfloat16, requires_grad=True),
        "none": torch.tensor([math.nan]),
        "empty": torch.zeros(0),
    }
    with MetricLogger(tmp_path, 0) as logger:
        for update in (1, 2):
            logger.scalars("source", {"return": update / 4, "success": 0.5}, update * 1000)
            logger.scalars("train", {"loss": 8.0 / update}, update)
        logger.histograms(distributions, 7)
        logger.image("goals", np.zeros((4, 6, 3), np.uint8), 2)
    logger.close()  # a second time
    found = EventAccumulator(str(tmp_path)).Reload()
    assert {tag: [(e.step, e.value) for e in found.Scalars(tag)] for tag in found.Tags()["scalars"]} == {
        "source/return": [(1000, 0.25), (2000, 0.5)],
        "source/success": [(1000, 0.5), (2000, 0.5)],
        "train/loss": [(1, 8.0), (2, 4.0)],
    }
    for tag, (number, total, low, high) in {"mixed": (2, 4.0, 1.0, 3.0), "half": (2, 2.5, 0.5, 2.0)}.items():
        (event,) = found.Histograms(tag)
        value = event.histogram_value
        assert (event.step, value.num, value.sum, value.min, value.max) == (7, number, total, low, high), tag
    assert set(found.Tags()["histograms"]) == {"mixed", "half"}
    (image,) = found.Images("goals")
    assert (image.step, image.height, image.width) == (2, 4, 6)


@pytest.mark.parametrize("error", [None, ValueError("mine")])
def test_a_full_disk_is_reported_unless_training_failed(tmp_path, monkeypatch, error):
    logger = MetricLogger(tmp_path, 0)
    monkeypatch.setattr(RecordWriter, "flush", Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
    expected, match = (ValueError, "mine") if error else (PipelineError, f"write curves in {tmp_path}: No space left")
    with pytest.raises(expected, match=match), logger:
        if error:
            raise error


@pytest.mark.parametrize("call", ["__init__", "add_event"])
def test_a_disk_that_is_full_at_the_start_is_reported(tmp_path, monkeypatch, call):
    """When the file is made, and when a picture is the first thing written to it."""
    full = OSError(errno.ENOSPC, "No space left on device")
    logger = MetricLogger(tmp_path, 0) if call == "add_event" else None
    monkeypatch.setattr(EventFileWriter, call, Mock(side_effect=full))
    with pytest.raises(PipelineError, match=f"write curves in {tmp_path}: No space left"):
        logger.image("goals", np.zeros((4, 6, 3), np.uint8), 2) if logger else MetricLogger(tmp_path, 0)


def test_a_clock_that_was_set_back_is_warned_of(tmp_path, capsys):
    """Beside a copy of a file, whose name has no time."""
    (tmp_path / "events.out.tfevents.old").touch()
    (tmp_path / f"events.out.tfevents.{int(time.time()) + 1000}.host").touch()
    MetricLogger(tmp_path, 0).close()
    assert "the clock was set back" in capsys.readouterr().out


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize(("interval", "first", "shown"), [(1, 0, True), (8, 40, True), (8, 40, False)])
def test_ten_lines_in_a_whole_run_and_a_bar_on_terminals_alone(monkeypatch, interval, first, *, shown, terminal):
    """Without a folder and a bar there is nothing to see."""
    out, err = io.StringIO(), io.StringIO()
    err.isatty = lambda: terminal
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    progress = Progress("label", 80, first, "update", shown)
    options = CurvesConfig(num_summaries=0, summary_interval=interval)
    with MetricLogger(None, 0, options, 80, progress) as logger:
        assert not logger.is_shown
        for iteration in range(first + 1, 81):
            logger.progress.advance()
            if logger.due(iteration):
                logger.progress.tell("loss 0.25")
                logger.scalars("train", {"loss": 1.0}, iteration)
    lines = out.getvalue().splitlines()
    assert len(lines) == (80 - first) // 8 * shown and bool(err.getvalue()) == (terminal and shown)
    if shown:
        assert re.match(rf"label   {10 + first * 100 // 80}%  loss 0\.25  .* update/s", lines[0])
        assert lines[-1].endswith("  0 s left")


@pytest.mark.parametrize("given", [[], ["tensorbord"], ["tensorboard", "board"]])
def test_writers_that_do_not_exist_are_refused(given: list[str]) -> None:
    with pytest.raises(ConfigError, match=r"summaries\.writer=.*: must .*tensorboard"):
        CurvesConfig(writer=given)


def test_a_writer_of_ones_own_gets_all_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points: list[Any] = []

    class Kept(Writer):
        def scalars(self, values: dict[str, float], step: int) -> None:
            points.append((step, values))

    monkeypatch.setattr(writers, "_classes", dict(writer_classes()))
    writer("kept")(Kept)
    with pytest.raises(ConfigError, match="another writer of this name"):
        writer("tensorboard")(Kept)
    logger = MetricLogger(tmp_path, 0, CurvesConfig(writer=["kept"], summary_interval=1, num_summaries=0))
    logger.scalars("train", {"loss": 0.5}, 1)
    logger.close()
    assert points[0] == (1, {"train/loss": 0.5}) and not [*tmp_path.iterdir()]
