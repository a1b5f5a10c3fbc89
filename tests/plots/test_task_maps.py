"""Success on each task: the printed values, the outlined cells, and files of the promised size."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image
from torch import Tensor

from icrl.config.compose import load_config
from icrl.envs import make_env
from icrl.envs.core import TensorEnv
from icrl.plots.figures import success_figure
from icrl.plots.style import HELD_OUT_COLOR, figure_to_array, save_figure

Part = tuple[Tensor, list[float]]


def world(*options: str) -> TensorEnv:
    return make_env(load_config(options).env)


def figure_of(env: TensorEnv, train: Part, held_out: Part | None = None, development: Part | None = None) -> Figure:
    nothing = train[0][:0], list[float]()
    return success_figure(env, train, held_out or nothing, development or nothing, title="success")


def printed(figure: Figure) -> dict[int, str]:
    """Values by cell of a room of 3 x 3."""
    places = {text.get_text(): text.get_position() for text in figure.axes[0].texts}
    assert len(places) == len(figure.axes[0].texts)
    return {int(y) * 3 + int(x): text for text, (x, y) in places.items()}


def outlined(figure: Figure, style: str = "-") -> set[int]:
    patches = [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle)]
    assert {to_hex(patch.get_edgecolor()).upper() for patch in patches} <= {HELD_OUT_COLOR}
    return {int(patch.get_y()) * 3 + int(patch.get_x()) for patch in patches if patch.get_linestyle() == style}


@pytest.mark.parametrize("random_start", [False, True])
def test_goals_of_a_room(random_start: bool, tmp_path: Path) -> None:
    env = world("env.size=3", f"env.random_start={random_start}")
    tasks = env.all_tasks()
    parts = (tasks[:2], [0.25, 1.0]), (tasks[2:4], [0.5, 0.0]), (tasks[4:5], [0.7])
    figure = figure_of(env, *parts)
    aside = 4 if random_start else 5  # a fixed start is no goal
    assert printed(figure) == {0: "0.25", 1: "1.00", 2: "0.50", 3: "0.00", aside: "0.70"}
    assert outlined(figure) == {2, 3} and outlined(figure, "--") == {aside}
    assert [text.get_text() for text in figure.legends[0].get_texts()][:2] == ["held-out tasks", "development tasks"]
    assert [line.get_xydata().tolist() for line in figure.axes[0].lines] == ([] if random_start else [[[1.5, 1.5]]])
    assert figure.axes[0].get_ylim() == (3, 0)  # row 0 on top, as in the videos
    save_figure(tmp_path / "new" / "map.png", figure)
    with Image.open(tmp_path / "new" / "map.png") as image:
        image.load()  # raises for a file that is cut off
        assert image.size == (800, 720) and image.format == "PNG"
    before = figure_to_array(figure_of(env, *parts))
    after = figure_to_array(figure_of(env, *parts[:2], (tasks[4:5], [0.1])))
    assert before.shape == (720, 800, 3) and before.dtype == np.uint8
    rows, columns = np.nonzero((before != after).any(axis=2))
    assert rows.min() > 200 and columns.min() > 200  # not the cells above and left of the one that changed


@pytest.mark.parametrize("show_key", [False, True])
def test_doors_show_the_mean_over_keys_and_are_outlined_if_all_are_held_out(show_key: bool) -> None:
    env = world("env=dark_key_to_door", "env.size=3", "env.random_start=false", f"env.show_key={show_key}")
    tasks = env.all_tasks()
    keyed = {tuple(task): number for number, task in enumerate(tasks.tolist())}
    train = tasks[[keyed[0, 5], keyed[1, 5], keyed[0, 7]]], [1.0, 0.0, 0.25]
    held_out = tasks[[keyed[2, 5], keyed[3, 8], keyed[4, 8]]]
    figure = figure_of(env, train, (held_out, [0.5, 0.5, 1.0]))
    assert printed(figure) == {5: "0.50", 7: "0.25", 8: "0.75"} and outlined(figure) == {8}
    assert figure.get_suptitle() == "success, mean by door"
    assert figure.axes[0].lines[0].get_xydata().tolist() == [[1.5, 1.5]]
    unknown = figure_of(env, train, (held_out, []))
    assert printed(unknown) == {5: "0.50", 7: "0.25"} and outlined(unknown) == {8}
    one_key = tasks[[keyed[0, 5], keyed[0, 7]]], [0.2, 0.6]
    assert figure_of(env, one_key).get_suptitle() == "success", "one task for each door"


def test_large_rooms_have_no_numbers() -> None:
    env = world("env.size=20", "model.max_size=20")
    assert not figure_of(env, (env.all_tasks(), [0.5] * len(env.all_tasks()))).axes[0].texts


def test_tasks_without_a_cell_are_sorted_by_success() -> None:
    env = world("env=bandit")
    tasks = env.all_tasks()
    train = tasks[:4], [0.5, 1.0, 0.0, 0.75]
    figure = figure_of(env, train, (tasks[4:6], [0.25, 0.5]), (tasks[6:7], [0.1]))
    held_out, training, development = figure.axes[0].lines
    np.testing.assert_array_equal(training.get_xydata(), [[0.125, 1.0], [0.375, 0.75], [0.625, 0.5], [0.875, 0.0]])
    np.testing.assert_array_equal(held_out.get_xydata(), [[0.25, 0.5], [0.75, 0.25]])
    assert development.get_xdata().tolist() == [0.5]
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["held-out tasks (2)", "training tasks (4)", "development tasks (1)"]
    assert len(figure_of(env, train, (tasks[4:6], [])).axes[0].lines) == 1
