"""Videos that play everywhere (h264, yuv420p), written whole or not at all."""

import tempfile
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path

import imageio_ffmpeg
import numpy as np
from numpy.typing import NDArray

from icrl.contracts import PipelineError
from icrl.runs.files import write_atomically

Frames = NDArray[np.uint8]  # [T, H, W, 3]
Frame = NDArray[np.uint8]  # [H, W, 3]

MARGIN = 4  # pixels between tiled clips; even, so that even clips give an even picture
BACKGROUND = (18, 20, 24)
OPTIONS = ("-crf", "18", "-preset", "veryfast", "-threads", "1", "-movflags", "+faststart")  # of ffmpeg


def write_video(path: Path, frames: Iterable[Frame], fps: float, options: Sequence[str] = OPTIONS) -> None:
    """Write `frames` to the .mp4 file `path`, and read it back, because ffmpeg can fail without a message.

    Frames are taken one by one, so that a long video need not fit in memory. Raises `PipelineError` if there are no
    frames, a side is odd, or ffmpeg does not write the whole file."""
    rest = iter(frames)
    first = next(rest, None)
    if first is None or first.shape[0] % 2 or first.shape[1] % 2:
        shape = "none" if first is None else f"{first.shape[1]} x {first.shape[0]} pixels"
        raise PipelineError(f"cannot write {path}: there must be frames, and their sides must be even, not {shape}")
    with tempfile.TemporaryDirectory() as scratch:
        draft, num_frames = Path(scratch) / "video.mp4", 0  # ffmpeg takes the container from the suffix
        try:
            writer = imageio_ffmpeg.write_frames(
                draft,
                (first.shape[1], first.shape[0]),
                fps=fps,
                codec="libx264",
                quality=None,  # -crf instead
                macro_block_size=2,  # the default, 16, would rescale and blur
                ffmpeg_log_level="error",
                output_params=list(options),
            )
            writer.send(None)
            for frame in chain([first], rest):
                writer.send(np.ascontiguousarray(frame))
                num_frames += 1
            writer.close()
            written, _ = imageio_ffmpeg.count_frames_and_secs(draft)
        except (OSError, RuntimeError) as error:
            raise PipelineError(f"cannot write {path}: ffmpeg failed: {error}") from error
        if written != num_frames:
            raise PipelineError(f"cannot write {path}: ffmpeg wrote {written} of {num_frames} frames")
        write_atomically(path, draft.read_bytes())


def tile(clips: Sequence[Frames], num_columns: int | None = None) -> Frames:
    """Clips of one size side by side, row by row, `[T, H', W', 3]`, until the longest ends.

    Shorter clips hold their last frame. Without `num_columns` the grid is as close to a square as it can be."""
    height, width = clips[0].shape[1:3]
    if num_columns is None:
        num_columns = min(
            range(len(clips), 0, -1), key=lambda columns: max(columns * width, -(-len(clips) // columns) * height)
        )
    num_rows, num_frames = -(-len(clips) // num_columns), max(len(clip) for clip in clips)
    shape = (num_frames, num_rows * (height + MARGIN) + MARGIN, num_columns * (width + MARGIN) + MARGIN, 3)
    grid = np.empty(shape, dtype=np.uint8)
    grid[:] = BACKGROUND
    for index, clip in enumerate(clips):
        top = MARGIN + index // num_columns * (height + MARGIN)
        left = MARGIN + index % num_columns * (width + MARGIN)
        tiled = grid[:, top : top + height, left : left + width]
        tiled[: len(clip)] = clip
        tiled[len(clip) :] = clip[-1]
    return grid
