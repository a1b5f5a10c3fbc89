"""What a run shows while it works: TensorBoard curves, one log line with throughput and time left."""

import dataclasses
import time
from pathlib import Path

import numpy as np
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

from src.config import Config
from src.contracts import Json, PipelineError


class Summaries:
    """TensorBoard events of one run. Each curve has one step axis; the tag's first word says which:
    `source/...` env steps per learner, `train/...` and `in_context/...` gradient updates, `adaptation/...` episodes."""

    def __init__(self, folder: Path, done: int | None = None) -> None:
        """Append to `folder`; of a run that goes on from step `done`, points after it (from the very start where
        `done` is 0), left when it was interrupted, are hidden."""
        self._writer = SummaryWriter(str(folder), purge_step=done and done + 1)

    def scalars(self, prefix: str, values: dict[str, float], step: int) -> None:
        """Add a point to each curve, on disk at once: a crash leaves no gap before the checkpoint that follows."""
        try:
            for name, value in values.items():
                self._writer.add_scalar(f"{prefix}/{name}", value, step)
            self._writer.flush()
        except OSError as error:  # of the thread that writes
            raise PipelineError(f"cannot write curves in {self._writer.log_dir}: {error.strerror}") from error

    def image(self, tag: str, pixels: np.ndarray, step: int) -> None:
        """Show RGB `pixels` `[H, W, 3]` uint8."""
        self._writer.add_image(tag, pixels, step, dataformats="HWC")

    def configuration(self, config: Config) -> None:
        lines = [f"    {key}: {value}" for key, value in flatten(dataclasses.asdict(config)).items()]
        self._writer.add_text("configuration", "\n".join(lines), 0)

    def bands(self, title: str, tags: list[str]) -> None:
        """Lay out one chart for each tag: its mean with the band between the 5th and 95th percentile."""
        charts = {tag.rsplit("/", 1)[-1]: ["Margin", [f"{tag}/mean", f"{tag}/p05", f"{tag}/p95"]] for tag in tags}
        self._writer.add_custom_scalars({title: charts})

    def close(self) -> None:
        self._writer.close()


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

    def __init__(self, label: str, total: int, done: int, unit: str) -> None:
        self._label, self._total, self._first, self._unit = label, total, done, unit
        self._done = done
        self._start = time.monotonic()
        self._bar = tqdm(total=total, initial=done, desc=label, unit=unit, unit_scale=True, dynamic_ncols=True)

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
