"""A program that was killed and continued ends with the bits of one that was not."""

from collections.abc import Sequence
from pathlib import Path

from harness import TINY, done, kill_late, results_of


def check_continues(
    stage: str, root: Path, folder: str, *options: str, step: int = 4, preset: Sequence[str] = TINY
) -> None:
    """Run the `stage`, and again as if its training in `folder` was killed after the checkpoint of `step`: all that is
    in `root` stays the same."""
    done(stage, root, *options, preset=preset)
    undisturbed = results_of(root)
    kill_late(root / folder, step)
    done(stage, root, *options, preset=preset)
    assert results_of(root) == undisturbed
