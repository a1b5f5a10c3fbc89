"""Videos that play everywhere (h264, yuv420p), written whole or not at all."""

import tempfile
from collections.abc import Sequence
from pathlib import Path

import imageio_ffmpeg
import numpy as np
from numpy.typing import NDArray

from src.contracts import PipelineError
from src.files import write_atomically

Frames = NDArray[np.uint8]  # [T, H, W, 3]

MARGIN = 4  # pixels between tiled clips; even, so that even clips give an even picture
BACKGROUND = (18, 20, 24)
_OPTIONS = ["-crf", "18", "-preset", "veryfast", "-threads", "1", "-movflags", "+faststart"]


def write_video(path: Path, frames: Frames, fps: float) -> None:
    """Write `frames` to `path`, an .mp4, and read it back: ffmpeg can fail without a word.

    Raises `PipelineError` for odd heights or widths, no frames, and whatever keeps ffmpeg from a whole file."""
    num_frames, height, width, _ = frames.shape
    if num_frames == 0 or height % 2 or width % 2:
        raise PipelineError(f"cannot write {path}: {num_frames} frames of {width} x {height}; sizes must be even")
    with tempfile.TemporaryDirectory() as scratch:
        draft = Path(scratch) / "video.mp4"  # ffmpeg takes the container from the suffix
        try:
            _encode(draft, frames, fps)
            written, _ = imageio_ffmpeg.count_frames_and_secs(draft)
        except (OSError, RuntimeError) as error:
            raise PipelineError(f"cannot write {path}: ffmpeg failed: {error}") from error
        if written != num_frames:
            raise PipelineError(f"cannot write {path}: ffmpeg wrote {written} of {num_frames} frames")
        write_atomically(path, draft.read_bytes())


def tile(clips: Sequence[Frames], num_columns: int | None = None) -> Frames:
    """Play clips of one height and width side by side, row by row, `[T, H', W', 3]`; T is that of the longest, and
    shorter clips hold their last frame. Without `num_columns` the grid is as near to a square as it can be."""
    height, width = clips[0].shape[1:3]
    if num_columns is None:
        num_columns = min(
            range(len(clips), 0, -1), key=lambda columns: max(columns * width, -(-len(clips) // columns) * height)
        )
    num_rows = -(-len(clips) // num_columns)
    num_frames = max(len(clip) for clip in clips)
    shape = (num_frames, num_rows * (height + MARGIN) + MARGIN, num_columns * (width + MARGIN) + MARGIN, 3)
    grid = np.empty(shape, dtype=np.uint8)
    grid[:] = BACKGROUND
    for index, clip in enumerate(clips):
        top = MARGIN + index // num_columns * (height + MARGIN)
        left = MARGIN + index % num_columns * (width + MARGIN)
        place = grid[:, top : top + height, left : left + width]
        place[: len(clip)] = clip
        place[len(clip) :] = clip[-1]
    return grid


def _encode(path: Path, frames: Frames, fps: float) -> None:
    _, height, width, _ = frames.shape
    writer = imageio_ffmpeg.write_frames(
        path,
        (width, height),
        fps=fps,
        codec="libx264",
        quality=None,  # -crf instead
        macro_block_size=2,  # the default, 16, would rescale and blur
        ffmpeg_log_level="error",
        output_params=list(_OPTIONS),
    )
    writer.send(None)
    for frame in frames:
        writer.send(np.ascontiguousarray(frame))
    writer.close()
