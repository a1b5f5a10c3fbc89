"""Live metrics of a run: curves, and the closer looks at training that an extension has."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import model_validator
from torch import Tensor, nn

from icrl.config.modules import extra_module
from icrl.config.options import NO_EFFECT, OR_ELSEWHERE, Name, OneOrMore, Options, option, refuse, refuse_both, walk
from icrl.contracts import AnyBatch, Objective, PipelineError, Rollout
from icrl.runs.checkpoint import Interval
from icrl.runs.processes import Progress
from icrl.runs.writers import Writer, writer_classes

_WRITER = "where curves go: tensorboard, or a writer of an extension; a list of several"


class CurvesConfig(Options):
    """Options of the curves of every program."""

    writer: Annotated[list[Name], OneOrMore] = option(["tensorboard"], _WRITER, may_change=True, stages="1, 2, 3, 4")
    num_summaries: int = option(100, "points per curve (0: use summary_interval)", ge=0, may_change=True)
    summary_interval: int = option(0, "iterations between points (both 0: none)", ge=0, may_change=True)
    profiled_iterations: int = option(0, "iterations to trace with torch.profiler (0: none)", ge=0, may_change=True)

    former = {"flush_secs": NO_EFFECT, "max_queue": NO_EFFECT, "code_snapshots": NO_EFFECT}

    @model_validator(mode="after")
    def _check(self) -> Self:
        refuse_both("summaries", num_summaries=self.num_summaries, summary_interval=self.summary_interval)
        known, given = ", ".join(names := [*writer_classes()]), f"summaries.writer={','.join(self.writer)}"
        refuse(not self.writer, f"summaries.writer=[]: must name at least one of {known}")
        refuse({*self.writer} - {*names}, f"{given}: must be among {known}{OR_ELSEWHERE}")
        for name in ("profiled_iterations", "details"):
            lacking = f"summaries.{name}={getattr(self, name, 0)} needs an extension that is not installed"
            refuse(getattr(self, name, 0) and len(INSPECTORS) == 1, lacking)
        return self

    def shown(self, folder: Path) -> str:
        """Command that shows the curves below `folder`, or `folder` itself if they are not written for TensorBoard."""
        return f"tensorboard --logdir {folder}" if "tensorboard" in self.writer else str(folder)


class SummariesConfig(CurvesConfig):
    gradient_noise_scale: Literal["none", "alternative", "paper"] = option(
        "none",
        "log the gradient noise scale: the batch size up to which larger batches help",
        may_change=True,
        stages="2, 3",
    )
    details: bool = option(
        False,
        "also log mean action probabilities and entropy, norms and histograms of all parameters and gradients, and "
        "histograms of the network's outputs and of the training data",
        may_change=True,
    )

    former = dict.fromkeys(("grads_and_vars", "action_distributions", "outputs", "debug"), NO_EFFECT)  # see details
    former |= dict.fromkeys(("summarize_first_interval", "update_counter_every_mini_batch"), NO_EFFECT)
    former |= {"metric_buffer_size": NO_EFFECT}


def check_writers(options: CurvesConfig) -> None:
    """Raise `ConfigError` if the library of a writer is not installed."""
    for name in options.writer:
        if library := writer_classes()[name].library:
            extra_module(library, f"summaries.writer={name}")


class MetricLogger(AbstractContextManager["MetricLogger"]):
    """Logger of the curves and log lines of one run. Without a folder it writes nothing.

    The first word of a tag determines the step axis: env steps per learner for `source...`, `update` and `evaluation`,
    episodes for `adaptation`, gradient updates for all others."""

    def __init__(
        self,
        folder: Path | None,
        done: int | None = None,
        options: CurvesConfig | None = None,
        total: int = 0,
        progress: Progress | None = None,
    ) -> None:
        """Append to `folder`. If the run resumes at step `done`, later points of an interrupted session are hidden (all
        points if `done` is 0). `options` space points over `total` iterations; `close` closes the `progress` too."""
        options, self._folder = options or CurvesConfig(), folder
        self.progress = progress or Progress("", 1, 0, "", shown=False)
        self.due = Interval(options.num_summaries, options.summary_interval, total).due
        self.is_shown = folder is not None
        self._writers = list[Writer]()
        if folder:
            folder.mkdir(parents=True, exist_ok=True)
            with self._reported():
                self._writers = [writer_classes()[name](folder, done) for name in dict.fromkeys(options.writer)]

    def scalars(self, prefix: str, values: dict[str, float], step: int) -> None:
        """Add a point to each curve."""
        with self._reported():
            for writer in self._writers:
                writer.scalars({f"{prefix}/{name}": float(value) for name, value in values.items()}, step)

    def histograms(self, values: dict[str, Tensor], step: int) -> None:
        """Add a distribution to each tag; numbers that are not finite are left out."""
        for tag, numbers in values.items():
            finite = numbers[numbers.isfinite()]
            with self._reported():
                for writer in self._writers if finite.numel() else ():
                    writer.histogram(tag, finite.float(), step)

    def image(self, tag: str, pixels: np.ndarray, step: int) -> None:
        """Add an image from RGB `pixels` `[H, W, 3]` uint8."""
        with self._reported():
            for writer in self._writers:
                writer.image(tag, pixels, step)

    def describe(self, config: Options) -> None:
        """Add the options of the run."""
        with self._reported():
            for writer in self._writers:
                writer.describe({key: value for key, value, _ in walk(config)})

    def flush(self) -> None:
        """Write all points to disk. Called before a checkpoint, so that a crash leaves no gap before it."""
        with self._reported():
            for writer in self._writers:
                writer.flush()

    def close(self) -> None:
        self.progress.close()
        self.flush()
        for writer in self._writers:
            writer.close()

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        with suppress(PipelineError) if error else nullcontext():  # the error of training matters more
            self.close()

    @contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:  # TensorBoard's comes from its writing thread
            raise PipelineError(f"cannot write curves in {self._folder}: {error.strerror}") from error


class Inspector:
    """Closer look at training, which changes nothing of it. This one sees nothing; an extension has another."""

    def profiled(self, folder: Path, num_iterations: int) -> AbstractContextManager[Callable[[], None]]:
        """Context of a profile of `num_iterations` iterations, for `folder`. Call its function after each iteration."""
        return nullcontext(lambda: None)

    def show_update(
        self, logger: MetricLogger, update: int, model: nn.Module, objective: Objective, batch: AnyBatch
    ) -> None:
        """Add the `summaries.details` of the update that was just made on `batch`."""

    def show_agents(self, logger: MetricLogger, steps: int, learner: Any, transitions: Rollout) -> None:
        """Add the `summaries.details` of source agents after `transitions` `[T, B]`, at `steps` env steps."""


INSPECTORS = [Inspector()]  # extensions append theirs; the last one counts


def shown(values: Mapping[str, float]) -> str:
    """Names and values of metrics, for a progress line."""
    return "  ".join(f"{name} {value:.4g}" for name, value in values.items())


def distribution(values: np.ndarray) -> dict[str, float]:
    """Mean, 5th and 95th percentile over learners."""
    low, high = np.percentile(values, [5, 95])
    return {"mean": float(values.mean()), "p05": float(low), "p95": float(high)}
