"""Maps of success on the goals of a room."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from task_maps import figure_of, outlined, printed, world

from icrl.plots.style import figure_to_array, save_figure

DRAWS = True


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
        assert image.size == (800, 720) and image.format == "PNG"
    pixels = figure_to_array(figure)
    assert pixels.shape == (720, 800, 3) and pixels.dtype == np.uint8


def test_no_numbers_are_printed_in_a_large_room() -> None:
    large = world("env.size=20", "model.max_size=20")
    assert not figure_of(large, (large.all_tasks(), [0.5] * len(large.all_tasks()))).axes[0].texts
