"""Videos read back, and failures that must not pass in silence."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import imageio_ffmpeg
import numpy as np
import pytest

from icrl.contracts import PipelineError
from icrl.plots import video
from icrl.plots.video import BACKGROUND, MARGIN, Frames, tile, write_video


def _clip(num_frames: int, height: int = 40, width: int = 60) -> Frames:
    """A blank clip whose brightness counts the frames."""
    return np.broadcast_to(
        np.arange(num_frames, dtype=np.uint8)[:, None, None, None] * 4, (num_frames, height, width, 3)
    )


@pytest.mark.parametrize("num_frames", [1, 2, 45])
def test_frames_come_back(tmp_path: Path, num_frames: int) -> None:
    path, clip = tmp_path / "new" / "goal_1.5.mp4", _clip(num_frames)
    write_video(path, clip, fps=8)
    reader: Iterator[Any] = imageio_ffmpeg.read_frames(path)
    meta = next(reader)
    frames = np.stack([np.frombuffer(frame, np.uint8).reshape(40, 60, 3) for frame in reader])
    assert meta["size"] == (60, 40)
    assert meta["fps"] == 8
    assert "h264" in meta["codec"]
    assert "yuv420p" in meta["pix_fmt"]
    assert frames.shape == clip.shape
    assert np.abs(frames.astype(int) - clip).max() <= 6
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("shape", [(3, 41, 60, 3), (3, 40, 61, 3), (0, 40, 60, 3)])
def test_shapes_no_player_takes(tmp_path: Path, shape: tuple[int, ...]) -> None:
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
def test_failing_encoder_leaves_the_old_video(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    path = tmp_path / "a.mp4"
    write_video(path, _clip(3), fps=8)
    before = path.read_bytes()
    monkeypatch.setattr(video, "_OPTIONS", options)
    with pytest.raises(PipelineError, match=r"a\.mp4"):
        write_video(path, _clip(20), fps=8)
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
    assert (seen[:, num_clips:] == BACKGROUND[0]).all()
    assert (grid[:, ::step] == BACKGROUND).all()


def test_short_clips_hold_their_last_frame() -> None:
    grid = tile([_clip(2), _clip(5)], num_columns=2)
    left, right = grid[:, MARGIN, MARGIN, 0], grid[:, MARGIN, -MARGIN - 1, 0]
    assert list(left) == [0, 4, 4, 4, 4]
    assert list(right) == [0, 4, 8, 12, 16]


def test_columns_can_be_given() -> None:
    assert tile([_clip(1)] * 6, num_columns=6).shape[1:3] == (40 + 2 * MARGIN, 6 * (60 + MARGIN) + MARGIN)
    assert tile([_clip(1)] * 5, num_columns=2).shape[1:3] == (3 * (40 + MARGIN) + MARGIN, 2 * (60 + MARGIN) + MARGIN)


def test_tiles_of_wide_clips_make_a_near_square() -> None:
    height, width = tile([np.zeros((1, 10, 40, 3), np.uint8)] * 16).shape[1:3]
    assert 0.5 < height / width < 2
