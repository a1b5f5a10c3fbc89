"""Pictures of the room against what each cell must look like."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image
from task_maps import figure_of, outlined, printed, world

from icrl.envs.core import MapView
from icrl.extensions.maps.render import AGENT, CAPTION, FLOOR, GOALS, REWARDED, TRAIL, WALL, caption, render_cells
from icrl.plots.style import figure_to_array, save_figure


@settings(max_examples=20)
@given(st.data(), st.integers(1, 7), st.integers(1, 9), st.integers(8, 25))
def test_every_cell_of_every_frame(data: st.DataObject, rows: int, columns: int, pixels: int) -> None:
    cells = st.integers(0, rows * columns - 1)
    goals = data.draw(st.lists(cells, max_size=5, unique=True))
    stands = data.draw(st.lists(cells | st.just(-1), min_size=1, max_size=6))
    rewarded = [cell in goals for cell in stands]
    view = MapView(rows, columns, tuple(goals))
    shape = len(stands), rows * columns
    visited = data.draw(
        st.none() | st.integers(0, 99).map(lambda seed: np.random.default_rng(seed).random(shape) < 0.5)
    )
    frames = render_cells(np.array(stands), view, pixels, np.array(rewarded), visited)
    assert frames.dtype == np.uint8 and len({*GOALS, FLOOR, TRAIL, AGENT, WALL, REWARDED}) == len(GOALS) + 5
    wall = max(2, pixels // 4)
    for side, count in zip(frames.shape[1:3], (rows, columns), strict=True):
        assert side % 2 == 0 and side - count * pixels - 2 * wall in (0, 1)
    for t, frame in enumerate(frames):
        border = REWARDED if rewarded[t] else WALL
        for edge in (frame[:wall], frame[-wall:], frame[:, :wall], frame[:, -wall:]):
            assert (edge == border).all()
        for cell in range(rows * columns):
            top, left = wall + cell // columns * pixels, wall + cell % columns * pixels
            picture = frame[top : top + pixels, left : left + pixels]
            on_trail = cell in stands[: t + 1] if visited is None else visited[t, cell]
            floor = TRAIL if on_trail else FLOOR
            expected = GOALS[goals.index(cell) % 2] if cell in goals else floor
            assert tuple(picture[0, 0]) == expected
            centre = tuple(picture[pixels // 2 - 1, pixels // 2 - 1])
            assert centre == (AGENT if cell == stands[t] else expected)


@settings(max_examples=10)
@example(text="a0 " * 16, height=30)  # whose letters shrink
@given(st.text("abc 0", min_size=1, max_size=50).filter(str.strip), st.sampled_from([12, 22, 30]))
def test_caption_stands_above_and_fits(text: str, height: int) -> None:
    frames = render_cells(np.array([0, 1, 2]), MapView(9, 9, (8,)), 24)
    with_text = caption(frames, text.strip(), height)
    assert with_text.shape == (3, frames.shape[1] + height, frames.shape[2], 3)
    assert (with_text[:, height:] == frames).all()
    assert (frames[:, 0] == WALL).all()
    ink = (with_text[0, :height] != CAPTION).any(axis=(0, 2))  # [W]
    assert ink.any() and not ink[:2].any() and not ink[-2:].any()


# ---- maps of success on the goals of a room


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
