"""Success on each task: where it is shown, and what is marked."""

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from icrl.config.compose import load_config
from icrl.envs import make_env
from icrl.plots.task_maps import success_figure


def printed(figure: Figure) -> dict[int, str]:
    """The values by cell of a room of 3 x 3."""
    texts = figure.axes[0].texts
    return {int(text.get_position()[1]) * 3 + int(text.get_position()[0]): text.get_text() for text in texts}


def marked(figure: Figure, style: str = "-") -> set[int]:
    patches = [patch for patch in figure.axes[0].patches if isinstance(patch, Rectangle)]
    patches = [patch for patch in patches if patch.get_linestyle() == style]
    return {int(patch.get_y()) * 3 + int(patch.get_x()) for patch in patches}


@pytest.mark.parametrize("random_start", [False, True])
def test_goals_of_a_room(random_start: bool) -> None:
    env = make_env(load_config(["env.size=3", f"env.random_start={random_start}"]).env)
    tasks = env.all_tasks()
    figure = success_figure(
        env, (tasks[:2], [0.25, 1.0]), (tasks[2:4], [0.5, 0.0]), (tasks[4:5], [0.7]), title="success"
    )
    aside = 4 if random_start else 5  # the start is no goal where it is always the same
    assert printed(figure) == {0: "0.25", 1: "1.00", 2: "0.50", 3: "0.00", aside: "0.70"}
    assert marked(figure) == {2, 3} and marked(figure, "--") == {aside}
    assert [text.get_text() for text in figure.legends[0].get_texts()][:2] == ["held-out tasks", "development tasks"]
    starts = [line.get_xydata().tolist() for line in figure.axes[0].lines]
    assert starts == ([] if random_start else [[[1.5, 1.5]]])


@pytest.mark.parametrize("show_key", [False, True])
def test_doors_show_the_mean_over_keys_and_are_marked_if_all_are_held_out(show_key: bool) -> None:
    options = ["env=dark_key_to_door", "env.size=3", "env.random_start=false", f"env.show_key={show_key}"]
    env = make_env(load_config(options).env)
    tasks = env.all_tasks()
    keyed = {tuple(task): number for number, task in enumerate(tasks.tolist())}
    train = tasks[[keyed[0, 5], keyed[1, 5], keyed[0, 7]]]
    held_out = tasks[[keyed[2, 5], keyed[3, 8], keyed[4, 8]]]
    figure = success_figure(
        env, (train, [1.0, 0.0, 0.5]), (held_out, [0.5, 0.5, 1.0]), (tasks[:0], []), title="success"
    )
    assert printed(figure) == {5: "0.50", 7: "0.50", 8: "0.75"}
    assert marked(figure) == {8}
    assert figure.axes[0].lines[0].get_xydata().tolist() == [[1.5, 1.5]]
    unknown = success_figure(env, (train, [1.0, 0.0, 0.5]), (held_out, []), (tasks[:0], []), title="success")
    assert printed(unknown) == {5: "0.50", 7: "0.50"} and marked(unknown) == {8}


def test_tasks_without_a_place_stand_in_order() -> None:
    env = make_env(load_config(["env=bandit"]).env)
    tasks = env.all_tasks()
    figure = success_figure(
        env, (tasks[:4], [0.5, 1.0, 0.0, 0.75]), (tasks[4:6], [0.25, 0.5]), (tasks[6:7], [0.1]), title="success"
    )
    held_out, train, development = figure.axes[0].lines
    np.testing.assert_array_equal(train.get_xydata(), [[0.125, 1.0], [0.375, 0.75], [0.625, 0.5], [0.875, 0.0]])
    np.testing.assert_array_equal(held_out.get_xydata(), [[0.25, 0.5], [0.75, 0.25]])
    assert development.get_xdata().tolist() == [0.5]
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["held-out tasks (2)", "training tasks (4)", "development tasks (1)"]
    alone = success_figure(env, (tasks[:4], [0.5, 1.0, 0.0, 0.75]), (tasks[4:6], []), (tasks[:0], []), title="success")
    assert len(alone.axes[0].lines) == 1


def test_the_title_says_what_cells_stand_for_where_tasks_share_them() -> None:
    env = make_env(load_config(["env=dark_key_to_door", "env.size=3"]).env)
    tasks = env.all_tasks()
    same_door, other_doors = tasks[tasks[:, 1] == 4][:2], tasks[tasks[:, 0] == 0][:2]

    def title(of: torch.Tensor) -> str:
        figure = success_figure(env, (of, [0.2, 0.6]), (tasks[:0], []), (tasks[:0], []), title="success")
        return figure.get_suptitle()

    assert title(same_door) == "success, mean by door"
    assert title(other_doors) == "success"
