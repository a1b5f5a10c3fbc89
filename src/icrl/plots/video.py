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
_OPTIONS = ["-crf", "18", "-preset", "veryfast", "-threads", "1", "-movflags", "+faststart"]


def write_video(path: Path, frames: Iterable[Frame], fps: float) -> None:
    """Write `frames` to `path`, an .mp4, and read it back: ffmpeg can fail without a word. They are taken one by one,
    so that a long video need not fit in memory.

    Raises `PipelineError` for odd heights or widths, no frames, and whatever keeps ffmpeg from a whole file."""
    rest = iter(frames)
    first = next(rest, None)
    if first is None or first.shape[0] % 2 or first.shape[1] % 2:
        shape = "none" if first is None else f"{first.shape[1]} x {first.shape[0]} pixels"
        raise PipelineError(f"cannot write {path}: there must be frames, and their sides must be even, not {shape}")
    with tempfile.TemporaryDirectory() as scratch:
        draft = Path(scratch) / "video.mp4"  # ffmpeg takes the container from the suffix
        try:
            num_frames = _encode(draft, chain([first], rest), (first.shape[1], first.shape[0]), fps)
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


def _encode(path: Path, frames: Iterable[Frame], size: tuple[int, int], fps: float) -> int:
    """Returns how many frames there were."""
    writer = imageio_ffmpeg.write_frames(
        path,
        size,
        fps=fps,
        codec="libx264",
        quality=None,  # -crf instead
        macro_block_size=2,  # the default, 16, would rescale and blur
        ffmpeg_log_level="error",
        output_params=list(_OPTIONS),
    )
    writer.send(None)
    num_frames = 0
    for frame in frames:
        writer.send(np.ascontiguousarray(frame))
        num_frames += 1
    writer.close()
    return num_frames
