"""Writer of videos, which are written whole or not at all."""

import tempfile
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path

import imageio_ffmpeg
import numpy as np

from icrl.contracts import PipelineError
from icrl.plots.style import Frame
from icrl.runs.files import write_atomically

OPTIONS = ("-crf", "18", "-preset", "veryfast", "-threads", "1", "-movflags", "+faststart")  # of ffmpeg


def write_video(path: Path, frames: Iterable[Frame], fps: float, options: Sequence[str] = OPTIONS) -> None:
    """Write `frames` to the .mp4 file `path` (h264, yuv420p), one by one, so that a long video need not fit in memory.

    It is read back, because ffmpeg can fail without a message. Raises `PipelineError` if there are no frames, a side is
    odd, or ffmpeg does not write the whole file."""
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
