"""What a run shows while it works: TensorBoard curves, one log line with throughput and time left."""

import time
from contextlib import nullcontext, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from torch import Tensor
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

from icrl.contracts import Json, PipelineError


class Summaries:
    """TensorBoard events of one run. Each curve has one step axis; the tag's first word says which: `source...`,
    `update` and `evaluation` env steps per learner, `adaptation` episodes, all others gradient updates."""

    def __init__(self, folder: Path, done: int | None = None, flush_secs: int = 10, max_queue: int = 100) -> None:
        """Append to `folder`; of a run that goes on from step `done`, points after it (from the very start where
        `done` is 0), left when it was interrupted, are hidden. Points reach the disk within `flush_secs` seconds (a
        local one at once); while `max_queue` of them wait to be written, whoever adds one waits too."""
        self._warn_of_the_clock(folder)
        self._writer = SummaryWriter(
            str(folder), purge_step=done and done + 1, max_queue=max_queue, flush_secs=flush_secs
        )

    def scalars(self, prefix: str, values: dict[str, float], step: int) -> None:
        """Add a point to each curve."""
        for name, value in values.items():
            self._writer.add_scalar(f"{prefix}/{name}", value, step)

    def histograms(self, values: dict[str, Tensor], step: int) -> None:
        """Add a distribution to each tag; numbers that are not finite are left out."""
        for tag, numbers in values.items():
            finite = numbers[numbers.isfinite()]
            if finite.numel():
                self._writer.add_histogram(tag, finite.float(), step)

    def flush(self) -> None:
        """Put all points on disk: before a checkpoint, so that a crash leaves no gap before it."""
        try:
            self._writer.flush()
        except OSError as error:  # of the thread that writes
            raise PipelineError(f"cannot write curves in {self._writer.log_dir}: {error.strerror}") from error

    def image(self, tag: str, pixels: np.ndarray, step: int) -> None:
        """Show RGB `pixels` `[H, W, 3]` uint8."""
        self._writer.add_image(tag, pixels, step, dataformats="HWC")

    def texts(self, texts: dict[str, str]) -> None:
        """Show Markdown texts."""
        for tag, text in texts.items():
            self._writer.add_text(tag, text, 0)

    def bands(self, title: str, tags: list[str]) -> None:
        """Lay out one chart for each tag: its mean with the band between the 5th and 95th percentile."""
        charts = {tag.rsplit("/", 1)[-1]: ["Margin", [f"{tag}/mean", f"{tag}/p05", f"{tag}/p95"]] for tag in tags}
        self._writer.add_custom_scalars({title: charts})

    def close(self) -> None:
        self.flush()
        self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(PipelineError) if error else nullcontext():  # the one of training says more
            self.close()

    def _warn_of_the_clock(self, folder: Path) -> None:
        """TensorBoard reads event files in the order of the times in their names."""
        stamps = [int(path.name.split(".")[3]) for path in folder.glob("events.out.tfevents.*")]
        if max(stamps, default=0) > time.time():
            tqdm.write(
                f"the clock was set back since {folder} was written: TensorBoard may show points of an interrupted run "
                "again; checkpoints and results do not depend on the clock"
            )


def spread(values: np.ndarray) -> dict[str, float]:
    """Mean, 5th and 95th percentile over agents; empty where no agent has a value yet."""
    known = values[~np.isnan(values)]
    if not len(known):
        return {}
    low, high = np.percentile(known, [5, 95])
    return {"mean": float(known.mean()), "p05": float(low), "p95": float(high)}


def flatten(nested: Json, prefix: str = "") -> dict[str, Json]:
    """Nested dicts as one with dotted keys."""
    flat: dict[str, Json] = {}
    for key, value in nested.items():
        flat |= flatten(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


class Progress:
    """A tqdm bar, and log lines for those who read a file: what is done, how fast, how long it will take."""

    def __init__(self, label: str, total: int, done: int, unit: str, shown: bool = True) -> None:
        self._label, self._total, self._first, self._unit = label, total, done, unit
        self._done = done
        self._start = time.monotonic()
        self._bar = tqdm(
            total=total, initial=done, desc=label, unit=unit, unit_scale=True, dynamic_ncols=True, disable=not shown
        )

    def advance(self, amount: int) -> None:
        self._done += amount
        self._bar.update(amount)

    def log(self, values: dict[str, float]) -> None:
        """One line above the bar."""
        rate = (self._done - self._first) / max(time.monotonic() - self._start, 1e-9)
        left = f"{(self._total - self._done) / rate:.0f} s left" if rate else "starting"
        shown = "  ".join(f"{name} {value:.4g}" for name, value in values.items())
        share = self._done / self._total
        tqdm.write(f"{self._label}  {share:4.0%}  {shown}  {rate:,.4g} {self._unit}/s  {left}")

    def close(self) -> None:
        self._bar.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
