"""Curves read back from event files are those that were logged, also after an interruption."""

from pathlib import Path

import numpy as np
import pytest

from icrl.config.compose import load_config
from icrl.contracts import ConfigError
from icrl.plots.training_curves import read_scalars, running_mean, training_figure, write_training_curves
from icrl.runs.metrics import MetricLogger


def _log(folder: Path, first: int, last: int, offset: float = 0.0) -> None:
    summaries = MetricLogger(folder, first)
    for update in range(first, last):
        summaries.scalars("train", {"nll": 1 / (update + 1) + offset}, update)
        if update % 2 == 0:
            summaries.scalars("in_context", {"development_last_success": update / 10}, update)
    summaries.close()


def test_what_was_logged_is_read(tmp_path: Path) -> None:
    _log(tmp_path, 0, 5)
    curves = read_scalars(tmp_path)
    assert curves.keys() == {"train/nll", "in_context/development_last_success"}
    np.testing.assert_array_equal(curves["train/nll"][0], np.arange(5))
    np.testing.assert_allclose(curves["train/nll"][1], 1 / np.arange(1, 6))
    np.testing.assert_array_equal(curves["in_context/development_last_success"][0], [0, 2, 4])


@pytest.mark.parametrize("resumed_at", [0, 3])
def test_of_an_interrupted_run_each_step_counts_once(tmp_path: Path, resumed_at: int) -> None:
    _log(tmp_path, 0, 6, offset=1.0)
    _log(tmp_path, resumed_at, 8)
    steps, values = read_scalars(tmp_path)["train/nll"]
    np.testing.assert_array_equal(steps, np.arange(8))
    np.testing.assert_allclose(values, 1 / (steps + 1) + (steps < resumed_at))


def test_running_mean() -> None:
    np.testing.assert_allclose(running_mean(np.array([1.0, 2.0, 6.0, 3.0]), 0.5), [1.5, 3.0, 11 / 3, 4.5])
    np.testing.assert_array_equal(running_mean(np.arange(4.0), 0.1), np.arange(4.0))


def test_figure_draws_what_there_is() -> None:
    steps, values = np.arange(3.0), np.array([0.1, 0.2, 0.3])
    curves = {tag: (steps, values) for tag in ("train/nll", "train/accuracy", "in_context/development_last_success")}
    figure = training_figure(curves, num_actions=5, best_update=2, title="run")
    likelihood, accuracy, success, reward = figure.axes
    uniform = {axes: [line.get_ydata()[0] for line in axes.lines] for axes in (likelihood, accuracy)}
    assert pytest.approx(np.log(5)) in uniform[likelihood]
    assert pytest.approx(0.2) in uniform[accuracy]
    np.testing.assert_array_equal(success.lines[0].get_ydata(), values)
    assert [line.get_xdata() for line in reward.lines] == [[2, 2]]  # the best checkpoint alone
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert "development tasks" in names
    assert "development tasks, first episode" not in names


def test_a_run_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="train_gpt"):
        write_training_curves(load_config(["experiment=tiny", f"root={tmp_path}"]))
