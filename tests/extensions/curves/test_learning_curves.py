"""Learning curves of histories, against episodes by hand; curves of a training, as they were logged."""

from pathlib import Path

import numpy as np
import pytest
import small_histories
import small_models
import torch
from harness import TINY, done
from installed import needs
from toy import events_of

from icrl.app.compose import load_config
from icrl.contracts import ConfigError, PipelineError, Rollout
from icrl.data.history_store import Histories, open_histories
from icrl.envs import make_env
from icrl.envs.core import TensorEnv
from icrl.evaluation.references import exact_references
from icrl.extensions.curves import learning_curves as learning
from icrl.extensions.curves import training_curves as plots
from icrl.extensions.curves.learning_curves import LearningCurves, learning_curves, learning_figure
from icrl.extensions.curves.table import CSV, read_table
from icrl.runs import checkpoint
from icrl.runs.metrics import CurvesConfig, MetricLogger
from icrl.spaces import discrete_spec


@pytest.mark.parametrize(("asked", "drawn"), [(2, 2), (50, 3)])
def test_success_is_that_of_the_episodes_that_ended(asked: int, drawn: int) -> None:
    """Random lives, counted by hand: episodes end at random, with success, and after 5 steps; rewards come any time."""
    rng, life, longest = np.random.default_rng(0), 60, 5
    shape = (3 * 2 * 2, life)  # tasks, learners, environments
    columns = {name: np.zeros(shape, np.uint8) for name in Rollout._fields}
    won, ended = np.zeros((2, 3, 2, drawn))
    for row in range(shape[0]):
        time = 0
        for step in range(life):
            wins, cut = rng.random() < 0.2, time == longest - 1
            found = {"timestep": time, "reward": 2 if wins else rng.integers(3), "terminated": wins}
            for name, value in (found | {"truncated": cut and not wins}).items():
                columns[name][row, step] = value
            place = (*divmod(row // 2, 2), step * drawn // life)
            ended[place] += wins or cut
            won[place] += wins
            time = 0 if wins or cut else time + 1
    spec = discrete_spec(9, 5, (-1.0, 0.0, 1.0), 3, longest, "goal")
    manifest = {"rows": {"num_learners": 2, "num_envs": 2}, "tasks": {"train": [0, 1, 2]}, "env": spec.to_json()}
    curves = learning_curves(Histories(Path(), manifest, columns), asked)
    np.testing.assert_array_equal(curves.mean, won / ended)
    np.testing.assert_allclose(curves.env_steps, (np.arange(drawn) + 0.5) * life * 2 / drawn)


@pytest.mark.parametrize(("num_tasks", "shown"), [(7, [6, 4, 3, 2, 0]), (2, [1, 0])])
def test_figure_shows_mean_band_and_tasks_from_fast_to_slow(num_tasks: int, shown: list[int]) -> None:
    success = np.linspace(0, 1, num_tasks * 3 * 4).reshape(num_tasks, 3, 4)  # later tasks are learnt better
    labels = [f"goal_0_{task}" for task in range(num_tasks)]
    figure = learning_figure(LearningCurves(np.arange(4.0), success), labels, random=0.1, title="lives")
    left, right = figure.axes
    np.testing.assert_allclose(left.lines[0].get_ydata(), success.mean((0, 1)))
    *lines, random = right.lines
    np.testing.assert_allclose([line.get_ydata() for line in lines], [success[task].mean(0) for task in shown])
    assert random.get_ydata()[0] == 0.1
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["mean", "5 to 95 % of agents", *(f"goal_0_{task}" for task in shown), "random"]


@needs("formats")
def test_the_curves_of_an_unknown_world_are_drawn_without_chance(tmp_path: Path, monkeypatch) -> None:
    config, ends = load_config([*TINY, f"root={tmp_path}"]), (torch.arange(60) % 10 == 9)[:, None].expand(60, 4)
    time = (torch.arange(60) % 10)[:, None].expand(60, 4)
    made = small_histories.transitions_of(ends)._replace(timestep=time)
    monkeypatch.setattr(small_histories, "transitions_of", lambda _: made)
    small_histories.write_histories(tmp_path, "tiny", config, [3, 0], 2, ends)
    left_out = ("env.", "source.", "tasks.", "data.num_dev", "evaluation.checkpoint")
    options = [option for option in TINY if not option.startswith(left_out)]
    figures = []
    monkeypatch.setattr(learning.style, "save_figure", lambda path, figure: figures.append(figure) or path)
    learning.write_learning_curves(load_config([*options, "env=recorded", f"root={tmp_path}"]))
    assert [text.get_text() for text in figures[0].legends[0].get_texts()][2:] == ["task_0", "task_3"]


@needs("exact")
@pytest.mark.parametrize("planner", [True, False])
def test_the_curves_of_a_run_are_drawn_beside_chance(root: Path, monkeypatch, planner: bool) -> None:
    """The success of chance is exact, or played where that is not known."""
    config, drawn = load_config([*TINY, f"root={root}"]), []
    env = make_env(config.env)
    train = env.all_tasks()[open_histories(config.folder("histories")).manifest["tasks"]["train"]]
    exact = np.mean(exact_references(env, train)["random"]["success"])
    draw = lambda *given, title: drawn.append(given[1:]) or learning_figure(*given, title=title)  # noqa: E731
    monkeypatch.setattr(TensorEnv, "has_planner", planner)
    monkeypatch.setattr(learning, "CHANCE_EPISODES", 200)
    monkeypatch.setattr(learning, "learning_figure", draw)
    path = learning.write_learning_curves(config)
    assert path == root / "logs/tiny/source/learning.png" and path.stat().st_size > 0
    ((labels, random),) = drawn
    assert labels == [env.label(task) for task in train]
    assert random == pytest.approx(exact, abs=1e-9 if planner else 0.06) and (random == exact) == planner


# ---- curves of a training

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


def test_figure_of_a_model_shows_the_curves_there_are() -> None:
    tags = ("train/nll", "train/accuracy", "in_context/development_last_success")
    figure = plots.model_figure(dict.fromkeys(tags, (STEPS, STEPS / 10)), num_actions=5, best_update=2, title="run")
    likelihood, accuracy, success, reward = figure.axes
    for axes, guess in ((likelihood, np.log(5)), (accuracy, 0.2)):
        assert [line.get_ydata()[0] for line in axes.lines] == pytest.approx([0, 0, guess, 0])
    np.testing.assert_array_equal(success.lines[0].get_ydata(), STEPS / 10)
    assert [line.get_xdata() for line in reward.lines] == [[2, 2]]  # the best checkpoint alone
    names = ["one batch", "running mean", "uniform guess", "development tasks", "best checkpoint"]
    assert sorted(text.get_text() for text in figure.legends[0].get_texts()) == sorted(names)


def test_densities_may_be_above_one_and_have_an_error_in_place_of_an_accuracy() -> None:
    curves = dict.fromkeys(("train/nll", "train/action_error"), (STEPS, STEPS / 10 - 5))
    likelihood, error = plots.model_figure(curves, num_actions=0, best_update=None, title="run").axes
    assert likelihood.get_ylim()[0] < -5 and error.get_title() == "mean absolute error of the action"
    assert len(likelihood.lines) == len(error.lines) == 2


def test_a_curve_that_an_objective_lacks_leaves_its_panel_empty() -> None:
    curves = {"train/accuracy": (STEPS, STEPS / 10)}
    likelihood, accuracy = plots.model_figure(curves, num_actions=5, best_update=None, title="run").axes
    shown = [np.isfinite(axes.lines[1].get_ydata()).sum() for axes in (likelihood, accuracy)]
    assert shown == [0, len(STEPS)]


def test_curves_of_a_training_are_drawn_beside_it_and_a_missing_or_unlogged_one_is_refused(tmp_path):
    config = load_config(["experiment=tiny", f"root={tmp_path}"])
    with pytest.raises(ConfigError, match="train-gpt"):
        plots.write_training_curves(config)
    folder = config.folder("logs") / "gpt"
    checkpoint.save(folder, "best", 2, {}, small_models.described(), 1)
    with pytest.raises(ConfigError, match=r"no curves .* summaries\.writer other than tensorboard and csv"):
        plots.write_training_curves(config)
    for writer in ("csv", "tensorboard"):
        with MetricLogger(folder, options=CurvesConfig(writer=[writer])) as logger:
            logger.scalars("train", {"nll": 1.0, "accuracy": 0.5}, 1)
            logger.scalars("train", {"nll": 0.5, "accuracy": 1.0}, 2)
        curves = plots.read_scalars(folder)
        assert curves.keys() == {"train/nll", "train/accuracy"} and curves["train/nll"][1].tolist() == [1.0, 0.5]
        assert plots.write_training_curves(config) == folder / "training.png"
        (folder / "training.png").unlink()


# ---- tables of curves have what TensorBoard has, also after a kill


Points = dict[str, list[tuple[int, float]]]
BOTH = CurvesConfig(writer=["tensorboard", "csv"])


def on_tensorboard(folder: Path) -> Points:
    events = events_of(folder)
    return {tag: [(one.step, one.value) for one in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def in_table(folder: Path) -> Points:
    assert (folder / CSV).read_text().startswith("step,tag,value\n")
    return {tag: [*zip(*map(np.ndarray.tolist, curve), strict=True)] for tag, curve in read_table(folder / CSV).items()}


def same(one: Points, other: Points) -> bool:
    """Equal to the digits of TensorBoard's float32."""
    pairs = {tag: (np.float32(points), np.float32(other.get(tag, []))) for tag, points in one.items()}
    return one.keys() == other.keys() and all(np.array_equal(*pair, equal_nan=True) for pair in pairs.values())


def test_the_table_has_the_points_of_tensorboard(tmp_path: Path) -> None:
    """With the names and numbers that are hard to write, and nothing of what is no number."""
    with MetricLogger(tmp_path / "gpt", 0, BOTH) as logger:
        for step in (1, 2, 30):
            logger.scalars("train", {"loss": 1 / step, 'odd, "name"': -1e-30 * step}, step)
            logger.scalars("update", {"far": np.float64(1e30), "none": float("nan")}, 1000 * step)
        logger.histograms({"weights": torch.ones(3)}, 30)
        logger.image("goals", np.zeros((4, 6, 3), np.uint8), 30)
        table = in_table(tmp_path / "gpt")  # is complete before it is flushed
        logger.flush()
        assert same(table, on_tensorboard(tmp_path / "gpt"))
    found = in_table(tmp_path / "gpt")
    assert found["train/loss"] == [(1, 1.0), (2, 0.5), (30, 1 / 30)]  # with all digits
    assert len(found) == 4 and same(found, on_tensorboard(tmp_path / "gpt"))
    with MetricLogger(tmp_path / "alone", 0, CurvesConfig(writer=["csv"])):
        assert not [*(tmp_path / "alone").iterdir()]


@pytest.mark.parametrize("at", [0, 3, 5, None])
@pytest.mark.parametrize("torn", ["", "6,train/lo", "6"])
def test_a_resumed_table_is_that_of_an_uninterrupted_run(tmp_path: Path, at: int | None, torn: str) -> None:
    """The run was killed at 5, perhaps amid a line, and resumes `at` a step; with None it appends."""
    first = 5 if at is None else at
    for resumed, value, steps in ((0, 1.0, range(1, 6)), (at, 2.0, range(first + 1, 8))):
        with MetricLogger(tmp_path, resumed, BOTH) as logger:
            for step in steps:
                logger.scalars("train", {"loss": value, "accuracy": step}, step)
        with (tmp_path / CSV).open("a") as file:
            file.write(torn)
    MetricLogger(tmp_path, 7, BOTH).close()
    assert in_table(tmp_path)["train/loss"] == [(step, 1.0 if step <= first else 2.0) for step in range(1, 8)]
    assert same(in_table(tmp_path), on_tensorboard(tmp_path))


@pytest.mark.parametrize("torn", ["", "step,ta", "step,tag,value"])
def test_a_table_that_was_torn_in_its_head_has_the_points_after_that(tmp_path: Path, torn: str) -> None:
    (tmp_path / CSV).write_text(torn)
    with MetricLogger(tmp_path, 0, BOTH) as logger:
        logger.scalars("train", {"loss": 1.0}, 1)
    assert in_table(tmp_path) == {"train/loss": [(1, 1.0)]}


@pytest.mark.parametrize("torn", ["2", "2,train/lo", "2,train/loss,12"])
def test_half_a_line_at_the_end_of_a_table_is_no_point(tmp_path: Path, torn: str) -> None:
    (tmp_path / CSV).write_text(f"step,tag,value\n1,train/loss,0.5\n{torn}")
    assert in_table(tmp_path) == {"train/loss": [(1, 0.5)]}


def test_a_damaged_table_and_a_full_disk_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for damage in (b"first,train/loss,1\n", b"1,train/l\xefss,1\n"):
        (tmp_path / CSV).write_bytes(b"step,tag,value\n" + damage)
        with pytest.raises(PipelineError, match=r"scalars\.csv is damaged .* remove it"):
            MetricLogger(tmp_path, 3, BOTH)
    (tmp_path / CSV).unlink()
    logger = MetricLogger(tmp_path, 0, CurvesConfig(writer=["csv"]))
    (tmp_path / CSV).symlink_to("/dev/full")
    with pytest.raises(PipelineError, match=f"cannot write curves in {tmp_path}: No space left"):
        logger.scalars("train", {"loss": 1.0}, 1)


def test_every_table_of_a_run_has_what_tensorboard_shows(root: Path) -> None:
    """Those of training, of evaluations beside it and of each policy; no point is there twice."""
    for stage in ("train_gpt", "evaluate"):
        done(stage, root, "summaries.writer=[tensorboard,csv]", "name=new", "run=new", "histories=tiny")
    folders = {path.parent for path in root.rglob(CSV)}
    named = {str(folder.relative_to(root / "logs/new")) for folder in folders}
    assert {"gpt", "gpt/evals", "evaluation/random"} <= named
    for folder in folders:
        found = in_table(folder)
        assert found and same(found, on_tensorboard(folder)), folder
        assert all(len({step for step, _ in points}) == len(points) for points in found.values()), folder
