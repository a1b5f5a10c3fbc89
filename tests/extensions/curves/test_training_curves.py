"""Curves are those that were logged, also after an interruption, and figures show the curves there are."""

from pathlib import Path

import numpy as np
import pytest
import small_models

from icrl.app.compose import load_config
from icrl.contracts import ConfigError
from icrl.extensions.curves import training_curves as plots
from icrl.runs import checkpoint
from icrl.runs.metrics import CurvesConfig, MetricLogger

STEPS = np.arange(4.0)


def log(folder: Path, first: int, last: int, offset: float = 0.0) -> None:
    logger = MetricLogger(folder, first)
    for update in range(first, last):
        logger.scalars("train", {"nll": 1 / (update + 1) + offset, "accuracy": 0.5}, update)
        if update % 2 == 0:
            logger.scalars("in_context", {"development_last_success": update / 10}, update)
    logger.close()


@pytest.mark.parametrize("resumed_at", [0, 3])
def test_each_step_of_an_interrupted_run_counts_once(tmp_path: Path, resumed_at: int) -> None:
    log(tmp_path, 0, 6, offset=1.0)
    log(tmp_path, resumed_at, 8)
    curves = plots.read_scalars(tmp_path)
    assert curves.keys() == {"train/nll", "train/accuracy", "in_context/development_last_success"}
    steps, values = curves["train/nll"]
    np.testing.assert_array_equal(steps, np.arange(8))
    np.testing.assert_allclose(values, 1 / (steps + 1) + (steps < resumed_at))
    np.testing.assert_array_equal(curves["in_context/development_last_success"][0], [0, 2, 4, 6])


def test_running_mean() -> None:
    np.testing.assert_allclose(plots.running_mean(np.array([1.0, 2.0, 6.0, 3.0]), 0.5), [1.5, 3.0, 11 / 3, 4.5])
    np.testing.assert_array_equal(plots.running_mean(np.arange(4.0), 0.1), np.arange(4.0))


def legend(figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def test_figure_of_a_model_shows_the_curves_there_are() -> None:
    tags = ("train/nll", "train/accuracy", "in_context/development_last_success")
    figure = plots.model_figure(dict.fromkeys(tags, (STEPS, STEPS / 10)), num_actions=5, best_update=2, title="run")
    likelihood, accuracy, success, reward = figure.axes
    for axes, guess in ((likelihood, np.log(5)), (accuracy, 0.2)):
        assert [line.get_ydata()[0] for line in axes.lines] == pytest.approx([0, 0, guess, 0])
    np.testing.assert_array_equal(success.lines[0].get_ydata(), STEPS / 10)
    assert [line.get_xdata() for line in reward.lines] == [[2, 2]]  # the best checkpoint alone
    names = ["one batch", "running mean", "uniform guess", "development tasks", "best checkpoint"]
    assert sorted(legend(figure)) == sorted(names)


def test_without_evaluations_there_are_the_panels_of_the_fit_alone() -> None:
    curves = dict.fromkeys(("train/nll", "train/accuracy"), (STEPS, STEPS / 10))
    figure = plots.model_figure(curves, num_actions=5, best_update=None, title="run")
    assert len(figure.axes) == 2 and legend(figure) == ["one batch", "running mean", "uniform guess"]


def test_densities_may_be_above_one_and_have_an_error_in_place_of_an_accuracy() -> None:
    curves = dict.fromkeys(("train/nll", "train/action_error"), (STEPS, STEPS / 10 - 5))
    likelihood, error = plots.model_figure(curves, num_actions=0, best_update=None, title="run").axes
    assert likelihood.get_ylim()[0] < -5 and error.get_title() == "mean absolute error of the action"
    assert len(likelihood.lines) == len(error.lines) == 2


def logged(**values: float) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    return {f"train/{name}": (STEPS, value + STEPS / 10) for name, value in values.items()}


def test_curves_of_a_training_are_drawn_beside_it_and_a_missing_or_unlogged_one_is_refused(tmp_path, monkeypatch):
    config, drawn = load_config(["experiment=tiny", f"root={tmp_path}"]), []
    with pytest.raises(ConfigError, match="train-gpt"):
        plots.write_training_curves(config)
    folder, draw = config.folder("logs") / "gpt", plots.model_figure
    checkpoint.save(folder, "best", 2, {}, small_models.described(), 1)
    log(folder, 0, 4)
    with MetricLogger(folder / "evals") as logger:
        logger.scalars("in_context", {"development_first_success": 0.5}, 2)
    curves = []
    note = lambda *given: (curves.append(set(given[0])), drawn.append(given[1:]), draw(*given))[-1]  # noqa: E731
    monkeypatch.setattr(plots, "model_figure", note)
    assert plots.write_training_curves(config) == folder / "training.png"
    assert (folder / "training.png").stat().st_size > 0
    checkpoint.prune(folder, "best", [])
    checkpoint.save(folder, "last", 4, {}, small_models.described(), 1)
    plots.write_training_curves(config)
    (folder / "elsewhere").mkdir()
    for events in folder.glob("events.*"):
        events.rename(folder / "elsewhere" / events.name)
    with pytest.raises(ConfigError, match=r"no curves .* summaries\.writer other than tensorboard and csv"):
        plots.write_training_curves(config)
    with MetricLogger(folder, options=CurvesConfig(writer=["csv"])) as logger:
        logger.scalars("train", {"nll": 1.0, "accuracy": 0.5}, 1)
        logger.scalars("train", {"nll": 0.5, "accuracy": 1.0}, 2)
    plots.write_training_curves(config)
    assert curves.pop() == {"train/nll", "train/accuracy"} and drawn.pop()
    assert curves[0] - curves[1] == {"in_context/development_first_success"}
    assert drawn == [(small_models.SPEC.num_actions, best, "Training on histories") for best in (2, None)]
