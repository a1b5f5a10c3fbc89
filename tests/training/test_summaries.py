"""What TensorBoard finds in the files, read back with its own reader."""

from pathlib import Path

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.custom_scalar.layout_pb2 import Layout

import src.training.summaries as module
from src.config import load_config
from src.training.summaries import Progress, Summaries, flatten, spread

Points = dict[str, list[tuple[int, float]]]


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


def test_points_are_on_disk_before_the_run_ends(tmp_path: Path) -> None:
    """As after a kill: a checkpoint that follows must not find its curve gone. Nothing is left to write later."""
    summaries = Summaries(tmp_path, 0)
    summaries.scalars("train", {str(number): 1.0 for number in range(50)}, 1)
    (file,) = tmp_path.iterdir()
    size = file.stat().st_size
    summaries.close()
    assert file.stat().st_size == size
    assert len(points(tmp_path)) == 50


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


def test_the_configuration_is_written_out(tmp_path: Path) -> None:
    summaries = Summaries(tmp_path)
    summaries.configuration(load_config(["seed=17", "source.learning_rate=0.25"]))
    summaries.close()
    (event,) = read(tmp_path).Tensors("configuration/text_summary")
    text = event.tensor_proto.string_val[0].decode()
    assert "seed: 17" in text and "source.learning_rate: 0.25" in text and "trainer.num_updates:" in text


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
