"""What the figures show, and that files hold whole pictures of the promised size."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle
from PIL import Image

from icrl.plots.style import (
    HELD_OUT_COLOR,
    Curve,
    Panel,
    Reference,
    adaptation_figure,
    figure_to_array,
    goal_map_figure,
    save_figure,
)

EPISODES = 12
MEAN = np.linspace(0.1, 0.9, EPISODES)
SUCCESS = Panel(
    "success",
    [Curve("held out", MEAN, MEAN - 0.05, MEAN + 0.05), Curve("training", MEAN**2, MEAN**2, MEAN)],
    [Reference("random", 0.12), Reference("searcher", np.linspace(0.2, 1.0, EPISODES))],
)
STEPS = Panel("steps to goal", [Curve("held out", 20 - MEAN, 19 - MEAN, 21 - MEAN)], [Reference("random", 18.7)])
VALUES = {cell: cell / 8 for cell in range(9) if cell != 4}


def _png_size(path: Path) -> tuple[int, int]:
    with Image.open(path) as image:
        assert image.format == "PNG"
        image.load()  # raises for a file that is cut off
        return image.size


@pytest.mark.parametrize("panels", [[SUCCESS], [SUCCESS, STEPS]], ids=["one panel", "two panels"])
def test_adaptation_file(tmp_path: Path, panels: list[Panel]) -> None:
    path = tmp_path / "plots" / "adaptation.png"
    save_figure(path, adaptation_figure(panels, title="DarkRoom"))
    assert _png_size(path) == (1200, 700)
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_adaptation_lines() -> None:
    figure = adaptation_figure([SUCCESS, STEPS], title="DarkRoom")
    left, right = figure.axes
    held_out, training, random, searcher = left.lines
    episodes = np.arange(1, EPISODES + 1)
    np.testing.assert_array_equal(held_out.get_xydata(), np.column_stack([episodes, MEAN]))
    np.testing.assert_array_equal(random.get_ydata(), np.full(EPISODES, 0.12))
    np.testing.assert_array_equal(searcher.get_ydata(), SUCCESS.references[1].value)
    assert held_out.get_linestyle() == "-"
    assert random.is_dashed()
    assert searcher.is_dashed()
    assert training.get_color() != held_out.get_color()
    assert right.lines[0].get_color() == held_out.get_color()
    band = left.collections[0].get_datalim(left.transData)
    np.testing.assert_allclose((band.y0, band.y1), (MEAN[0] - 0.05, MEAN[-1] + 0.05))
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["held out", "training", "random", "searcher"]
    assert (left.get_ylabel(), right.get_ylabel()) == ("success", "steps to goal")


def test_seven_curves_and_eight_references_all_look_different() -> None:
    curves = [Curve(str(index), MEAN, MEAN, MEAN) for index in range(7)]
    references = [Reference(f"reference {index}", 0.1 * index) for index in range(8)]
    lines = adaptation_figure([Panel("success", curves, references)], title="title").axes[0].lines
    looks = {(line.get_color(), str(vars(line)["_unscaled_dash_pattern"])) for line in lines}
    assert len(looks) == len(lines) == 15
    assert all(line.is_dashed() for line in lines[7:])


def test_goal_map_file(tmp_path: Path) -> None:
    path = tmp_path / "map.png"
    save_figure(path, goal_map_figure(3, VALUES, held_out=[0], start=4, title="success"))
    assert _png_size(path) == (800, 720)


def test_goal_map_cells() -> None:
    figure = goal_map_figure(3, VALUES, held_out=[1, 6], start=4, title="success")
    axes = figure.axes[0]
    printed = {tuple(text.get_position()): text.get_text() for text in axes.texts}
    assert printed == {(cell % 3 + 0.5, cell // 3 + 0.5): f"{value:.2f}" for cell, value in VALUES.items()}
    outlined = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    assert {(int(patch.get_x()), int(patch.get_y())) for patch in outlined} == {(1, 0), (0, 2)}
    assert {to_hex(patch.get_edgecolor()).upper() for patch in outlined} == {HELD_OUT_COLOR}
    np.testing.assert_array_equal(axes.lines[0].get_xydata(), [[1.5, 1.5]])
    assert axes.get_ylim() == (3, 0)  # row 0 on top, as in the videos
    figure.draw_without_rendering()
    colors = axes.collections[0].get_facecolor()
    assert len({tuple(color) for color in np.asarray(colors)}) == 9


def test_large_map_has_no_numbers() -> None:
    figure = goal_map_figure(20, dict.fromkeys(range(400), 0.5), held_out=[], start=None, title="success")
    assert not figure.axes[0].texts


def test_figure_to_array_shows_the_values() -> None:
    one = figure_to_array(goal_map_figure(3, VALUES, held_out=[], start=4, title="success"))
    other = figure_to_array(goal_map_figure(3, VALUES | {8: 0.0}, held_out=[], start=4, title="success"))
    assert one.shape == (720, 800, 3)
    assert one.dtype == np.uint8
    changed_rows, changed_columns = np.nonzero((one != other).any(axis=2))
    assert changed_rows.min() > 360  # only the cell at the lower right changed
    assert changed_columns.min() > 400
