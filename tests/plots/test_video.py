"""Videos are read back equal, failures are errors, and tiled clips stand in a grid."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import imageio_ffmpeg
import numpy as np
import pytest

from icrl.contracts import PipelineError
from icrl.plots.style import BACKGROUND, MARGIN, Frames, tile, write_video


def clip_of(num_frames: int, height: int = 40, width: int = 60) -> Frames:
    """A blank clip whose brightness counts the frames."""
    brightness = np.arange(num_frames, dtype=np.uint8)[:, None, None, None] * 4
    return np.broadcast_to(brightness, (num_frames, height, width, 3))


@pytest.mark.parametrize("num_frames", [1, 45])
def test_frames_come_back(tmp_path: Path, num_frames: int) -> None:
    path, clip = tmp_path / "new" / "goal_1.5.mp4", clip_of(num_frames)
    write_video(path, clip, fps=8)
    reader: Iterator[Any] = imageio_ffmpeg.read_frames(path)
    meta = next(reader)
    frames = np.stack([np.frombuffer(frame, np.uint8).reshape(40, 60, 3) for frame in reader])
    assert (meta["size"], meta["fps"]) == ((60, 40), 8)
    assert "h264" in meta["codec"] and "yuv420p" in meta["pix_fmt"]
    assert frames.shape == clip.shape and np.abs(frames.astype(int) - clip).max() <= 6
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("shape", [(3, 41, 60, 3), (3, 40, 61, 3), (0, 40, 60, 3)])
def test_sizes_that_players_do_not_take_are_refused(tmp_path: Path, shape: tuple[int, ...]) -> None:
    with pytest.raises(PipelineError, match="must be even"):
        write_video(tmp_path / "a.mp4", np.zeros(shape, np.uint8), fps=8)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(["-frames:v", "2"], id="stops early"),
        pytest.param(["-vf", "drop_everything"], id="does not start"),
        pytest.param(["-f", "null"], id="writes nothing"),
    ],
)
def test_a_failing_encoder_leaves_the_old_video(tmp_path: Path, options: list[str]) -> None:
    path = tmp_path / "a.mp4"
    write_video(path, clip_of(3), fps=8)
    before = path.read_bytes()
    with pytest.raises(PipelineError, match=r"a\.mp4"):
        write_video(path, clip_of(20), 8, options)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.mp4"]


@pytest.mark.parametrize(("num_clips", "rows", "columns"), [(1, 1, 1), (2, 1, 2), (4, 2, 2), (5, 2, 3), (57, 8, 8)])
def test_tiled_clips_stand_row_by_row(num_clips: int, rows: int, columns: int) -> None:
    clips = [np.full((1 + k % 3, 10, 10, 3), k + 100, np.uint8) for k in range(num_clips)]
    grid = tile(clips)
    step = 10 + MARGIN
    assert grid.shape == (min(3, num_clips), rows * step + MARGIN, columns * step + MARGIN, 3)
    seen = grid[:, MARGIN + 5 :: step, MARGIN + 5 :: step, 0].reshape(len(grid), -1)  # clips' middles
    assert (seen[:, :num_clips] == np.arange(num_clips) + 100).all()
    assert (seen[:, num_clips:] == BACKGROUND[0]).all() and (grid[:, ::step] == BACKGROUND).all()


def test_columns_and_length_of_a_grid() -> None:
    """Short clips hold their last frame; wide clips make a grid that is nearly square."""
    grid = tile([clip_of(2), clip_of(5)], num_columns=2)
    assert grid[:, MARGIN, MARGIN, 0].tolist() == [0, 4, 4, 4, 4]
    assert grid[:, MARGIN, -MARGIN - 1, 0].tolist() == [0, 4, 8, 12, 16]
    assert tile([clip_of(1)] * 5, num_columns=2).shape[1:3] == (3 * (40 + MARGIN) + MARGIN, 2 * (60 + MARGIN) + MARGIN)
    height, width = tile([np.zeros((1, 10, 40, 3), np.uint8)] * 16).shape[1:3]
    assert 0.5 < height / width < 2
