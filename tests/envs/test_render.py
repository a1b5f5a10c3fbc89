"""Pictures of the room against what each cell must look like."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from src.envs.render import AGENT, CAPTION, FLOOR, GOAL, REWARDED, TRAIL, WALL, Frames, caption, render_cells


def _cell(frame: Frames, cell: int, size: int, pixels: int) -> Frames:
    """The pixels of one cell, found from the picture's centre."""
    wall = (frame.shape[0] - size * pixels) // 2
    top, left = wall + cell // size * pixels, wall + cell % size * pixels
    return frame[top : top + pixels, left : left + pixels]


@given(st.data(), st.integers(2, 9), st.integers(8, 25))
def test_every_cell_of_every_frame(data: st.DataObject, size: int, pixels: int) -> None:
    cells = st.integers(0, size * size - 1)
    obs, goal = data.draw(st.lists(cells, min_size=1, max_size=6)), data.draw(cells)
    rewarded = [cell == goal for cell in obs]
    frames = render_cells(np.array(obs), goal, size, pixels, np.array(rewarded))
    assert frames.dtype == np.uint8
    assert frames.shape[1] == frames.shape[2]
    assert frames.shape[1] % 2 == 0
    for t, frame in enumerate(frames):
        border = REWARDED if rewarded[t] else WALL
        assert (frame[0] == border).all()
        assert (frame[:, -1] == border).all()
        for cell in range(size * size):
            picture = _cell(frame, cell, size, pixels)
            expected = GOAL if cell == goal else TRAIL if cell in obs[: t + 1] else FLOOR
            assert tuple(picture[0, 0]) == expected
            centre = tuple(picture[pixels // 2 - 1, pixels // 2 - 1])
            assert centre == (AGENT if cell == obs[t] else expected)


def test_trail_can_be_given() -> None:
    visited = np.zeros((2, 9), dtype=bool)
    visited[1, 7] = True
    frames = render_cells(np.array([0, 1]), 8, 3, 10, visited=visited)
    assert tuple(_cell(frames[1], 0, 3, 10)[0, 0]) == FLOOR
    assert tuple(_cell(frames[0], 7, 3, 10)[0, 0]) == FLOOR
    assert tuple(_cell(frames[1], 7, 3, 10)[0, 0]) == TRAIL


def test_the_wall_is_plain_without_rewards() -> None:
    assert (render_cells(np.array([3, 3]), 3, 2)[:, 0] == WALL).all()


@given(st.text("abc 0", min_size=1, max_size=50).filter(str.strip), st.sampled_from([12, 22, 30]))
def test_caption_stands_above_and_fits(text: str, height: int) -> None:
    frames = render_cells(np.array([0, 1, 2]), 8, 9, 24)
    with_text = caption(frames, text.strip(), height)
    assert with_text.shape == (3, frames.shape[1] + height, frames.shape[2], 3)
    assert (with_text[:, height:] == frames).all()
    ink = (with_text[0, :height] != CAPTION).any(axis=(0, 2))  # [W]
    assert ink.any()
    assert not ink[:2].any()
    assert not ink[-2:].any()
