"""Videos are read back equal, and written whole or not at all."""

from pathlib import Path

import imageio_ffmpeg
import numpy as np
import pytest

from icrl.contracts import PipelineError
from icrl.extensions.films.video import write_video


def clip_of(num_frames: int) -> np.ndarray:
    """A blank clip whose brightness counts the frames."""
    brightness = np.arange(num_frames, dtype=np.uint8)[:, None, None, None] * 4
    return np.broadcast_to(brightness, (num_frames, 40, 60, 3))


@pytest.mark.parametrize("num_frames", [1, 45])
def test_frames_come_back(tmp_path: Path, num_frames: int) -> None:
    path, clip = tmp_path / "new" / "goal_1.5.mp4", clip_of(num_frames)
    write_video(path, clip, fps=8)
    reader = imageio_ffmpeg.read_frames(path)
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


@pytest.mark.parametrize("options", [["-frames:v", "2"], ["-vf", "drop_everything"], ["-f", "null"]])
def test_a_failing_encoder_leaves_the_old_video(tmp_path: Path, options: list[str]) -> None:
    """It stops early, does not start, or writes nothing."""
    path = tmp_path / "a.mp4"
    write_video(path, clip_of(3), fps=8)
    before = path.read_bytes()
    with pytest.raises(PipelineError, match=r"a\.mp4"):
        write_video(path, clip_of(20), 8, options)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.mp4"]
