"""What TensorBoard finds in the files, read back with its own reader."""

import errno
import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.tensorflow_stub.io.gfile import LocalFileSystem
from tensorboard.plugins.custom_scalar.layout_pb2 import Layout
from tensorboard.summary.writer import event_file_writer
from tensorboard.summary.writer.record_writer import RecordWriter

import icrl.runs.summaries as module
from icrl.contracts import PipelineError
from icrl.runs.metrics import Progress, Summaries, flatten, spread

Points = dict[str, list[tuple[int, float]]]


@pytest.fixture(autouse=True)
def in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorBoard orders event files of one second and one process by name, so number them from one digit on."""
    monkeypatch.setattr(event_file_writer, "_global_uid", event_file_writer.AtomicCounter(0))


def read(folder: Path) -> EventAccumulator:
    return EventAccumulator(str(folder)).Reload()


def points(folder: Path) -> Points:
    events = read(folder)
    return {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_each_curve_has_the_steps_it_was_given(tmp_path: Path) -> None:
    """Curves over env steps, updates and episodes in one folder do not take each other's axis."""
    summaries = Summaries(tmp_path)
    for update in (1, 2, 3):
        summaries.scalars("source", {"return": update / 4, "success": 0.5}, update * 1000)
        summaries.scalars("train", {"loss": 8.0 / update}, update)
    for episode in range(1, 5):
        summaries.scalars("adaptation/success", {"model": episode / 8}, episode)
    summaries.close()
    assert points(tmp_path) == {
        "source/return": [(1000, 0.25), (2000, 0.5), (3000, 0.75)],
        "source/success": [(1000, 0.5), (2000, 0.5), (3000, 0.5)],
        "train/loss": [(1, 8.0), (2, 4.0), (3, pytest.approx(8 / 3))],
        "adaptation/success/model": [(1, 0.125), (2, 0.25), (3, 0.375), (4, 0.5)],
    }


def write(folder: Path, done: int | None, steps: range, value: float) -> None:
    summaries = Summaries(folder, done)
    for step in steps:
        summaries.scalars("train", {"loss": value}, step)
    summaries.close()


def test_what_is_flushed_is_on_disk(tmp_path: Path) -> None:
    """As after a kill: a checkpoint that follows must not find its curve gone. Nothing is left to write later."""
    summaries = Summaries(tmp_path, 0, flush_secs=1000, max_queue=1000)
    summaries.scalars("train", {str(number): 1.0 for number in range(50)}, 1)
    summaries.flush()
    (file,) = tmp_path.iterdir()
    size = file.stat().st_size
    assert len(points(tmp_path)) == 50
    summaries.close()
    assert file.stat().st_size == size


def test_points_reach_a_local_disk_at_once_and_another_after_some_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other file systems, buckets for example, cannot append."""

    def seconds_of(folder: Path, flush_secs: int) -> float:
        summaries = Summaries(folder, 0, flush_secs)
        (file,) = folder.iterdir()
        time.sleep(0.05)  # TensorBoard writes the first flush of all without delay
        size, start = file.stat().st_size, time.monotonic()
        summaries.scalars("train", {"loss": 1.0}, 1)
        while file.stat().st_size == size and time.monotonic() < start + 1.5:
            time.sleep(0.01)
        seconds = time.monotonic() - start
        summaries.close()
        assert points(folder) == {"train/loss": [(1, 1.0)]}
        return seconds

    assert seconds_of(tmp_path / "local", 1000) < 0.5
    monkeypatch.delattr(LocalFileSystem, "append")
    assert 0.5 < seconds_of(tmp_path / "second", 1) < 1.5
    assert seconds_of(tmp_path / "late", 1000) > 1.5


def test_whoever_adds_a_point_to_a_full_queue_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a slow disk slows training down, and does not fill memory."""
    go_on, write = threading.Event(), RecordWriter.write
    summaries = Summaries(tmp_path, 0, max_queue=2)

    def slow(writer: RecordWriter, data: bytes) -> None:
        go_on.wait(10)
        write(writer, data)

    monkeypatch.setattr(RecordWriter, "write", slow)
    thread = threading.Thread(
        target=summaries.scalars, args=("train", {str(number): 1.0 for number in range(4)}, 1), daemon=True
    )
    thread.start()
    thread.join(0.2)
    assert thread.is_alive()  # one is being written, two wait
    go_on.set()
    thread.join()
    summaries.close()
    assert len(points(tmp_path)) == 4


def test_all_is_on_disk_when_it_is_closed(tmp_path: Path) -> None:
    with Summaries(tmp_path, 0, flush_secs=1000) as summaries:
        summaries.scalars("train", {"loss": 1.0}, 1)
    assert points(tmp_path) == {"train/loss": [(1, 1.0)]}
    summaries.close()  # twice is fine


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(RecordWriter, "flush", refuse)


def test_a_full_disk_is_refused_by_name(tmp_path: Path, full_disk: None) -> None:
    with (
        pytest.raises(PipelineError, match=f"cannot write curves in {tmp_path}: No space left on device"),
        _made_before(tmp_path) as summaries,
    ):
        summaries.flush()


def test_a_full_disk_does_not_hide_why_training_failed(tmp_path: Path, full_disk: None) -> None:
    with pytest.raises(ValueError, match="mine"), _made_before(tmp_path):
        raise ValueError("mine")
    with pytest.raises(PipelineError, match="No space"), _made_before(tmp_path):
        pass


@contextmanager
def _made_before(folder: Path) -> Iterator[Summaries]:
    """Summaries whose first event still found room."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RecordWriter, "flush", lambda writer: None)
        summaries = Summaries(folder, 0)
    with summaries:
        yield summaries


def test_histograms_are_of_the_finite_numbers(tmp_path: Path) -> None:
    with Summaries(tmp_path, 0) as summaries:
        summaries.histograms(
            {
                "mixed": torch.tensor([[1.0, math.nan], [-math.inf, 3.0]]),
                "whole": torch.arange(5),
                "half": torch.tensor([0.5, 2.0], dtype=torch.bfloat16, requires_grad=True),
                "none": torch.tensor([math.nan]),
                "empty": torch.zeros(0),
            },
            7,
        )
    found = read(tmp_path)
    assert set(found.Tags()["histograms"]) == {"mixed", "whole", "half"}
    for tag, (number, total, low, high) in {
        "mixed": (2, 4.0, 1.0, 3.0),
        "whole": (5, 10.0, 0.0, 4.0),
        "half": (2, 2.5, 0.5, 2.0),
    }.items():
        (event,) = found.Histograms(tag)
        value = event.histogram_value
        assert (event.step, value.num, value.sum, value.min, value.max) == (7, number, total, low, high), tag


def test_texts(tmp_path: Path) -> None:
    with Summaries(tmp_path, 0) as summaries:
        summaries.texts({"git": "revision `abc`", "code/a.py": "x = 1"})
    found = read(tmp_path)
    texts = {tag: found.Tensors(tag)[0].tensor_proto.string_val[0].decode() for tag in found.Tags()["tensors"]}
    assert texts == {"git/text_summary": "revision `abc`", "code/a.py/text_summary": "x = 1"}


@pytest.mark.parametrize(
    ("done", "expected"),
    [
        (3, [(1, 1.0), (2, 1.0), (3, 1.0), (4, 2.0), (5, 2.0), (6, 2.0)]),
        (5, [(1, 1.0), (2, 1.0), (3, 1.0), (4, 1.0), (5, 1.0), (6, 2.0)]),
        (0, [(step, 2.0) for step in range(1, 7)]),
    ],
)
def test_a_resumed_run_hides_what_came_after_its_checkpoint(
    tmp_path: Path, done: int, expected: list[tuple[int, float]]
) -> None:
    """It went to 5, and goes on from `done`; from 0 it starts anew and nothing of the first attempt is left."""
    write(tmp_path, 0, range(1, 6), 1.0)
    write(tmp_path, done, range(done + 1, 7), 2.0)
    assert points(tmp_path)["train/loss"] == expected


def test_appending_hides_nothing(tmp_path: Path) -> None:
    write(tmp_path, 0, range(1, 6), 1.0)
    summaries = Summaries(tmp_path)
    summaries.image("goals", np.zeros((4, 6, 3), np.uint8), 2)
    summaries.close()
    assert [step for step, _ in points(tmp_path)["train/loss"]] == [1, 2, 3, 4, 5]
    (image,) = read(tmp_path).Images("goals")
    assert (image.step, image.height, image.width) == (2, 4, 6)


def test_bands_are_laid_out_as_margin_charts(tmp_path: Path) -> None:
    summaries = Summaries(tmp_path)
    summaries.bands("source agents", ["source/return", "source/success"])
    summaries.close()
    (event,) = read(tmp_path).Tensors("custom_scalars__config__")
    layout = Layout.FromString(event.tensor_proto.string_val[0])
    (category,) = layout.category
    assert category.title == "source agents"
    assert {chart.title: [*_tags(chart)] for chart in category.chart} == {
        "return": ["source/return/mean", "source/return/p05", "source/return/p95"],
        "success": ["source/success/mean", "source/success/p05", "source/success/p95"],
    }


def _tags(chart: object) -> list[str]:
    (series,) = chart.margin.series
    return [series.value, series.lower, series.upper]


def test_bands_show_the_tags_that_spread_writes(tmp_path: Path) -> None:
    summaries = Summaries(tmp_path)
    summaries.bands("agents", ["source/return"])
    summaries.scalars("source/return", spread(np.array([0.0, 1.0, 2.0])), 10)
    summaries.close()
    (event,) = read(tmp_path).Tensors("custom_scalars__config__")
    (chart,) = Layout.FromString(event.tensor_proto.string_val[0]).category[0].chart
    assert set(_tags(chart)) == set(points(tmp_path))


def test_spread_is_mean_and_percentiles_of_what_is_known() -> None:
    values = np.array([*range(101), np.nan])
    assert spread(values) == {"mean": 50.0, "p05": 5.0, "p95": 95.0}
    assert spread(np.array([np.nan, np.nan])) == {}


def test_flatten() -> None:
    assert flatten({"a": 1, "b": {"c": 2, "d": {"e": [3]}}, "f": {}}) == {"a": 1, "b.c": 2, "b.d.e": [3]}


def test_a_log_line_says_what_is_done_how_fast_and_how_long_it_takes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """100 steps in all, 20 done before, 30 more in 10 seconds: half done, 3 a second, 50 steps take 17 seconds."""
    now = 1000.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    progress = Progress("label", total=100, done=20, unit="update")
    progress.advance(30)
    now += 10
    progress.log({"loss": 0.12345, "rate": 1.0})
    progress.close()
    line = capsys.readouterr().out
    assert line.split() == ["label", "50%", "loss", "0.1235", "rate", "1", "3", "update/s", "17", "s", "left"]
