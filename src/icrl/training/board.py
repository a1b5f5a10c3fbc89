"""What stage two shows of itself: curves, histograms, log lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from tqdm import tqdm

from icrl.collection.pace import interval_of, is_due
from icrl.contracts import Batch, ConfigError, Metrics, Objective
from icrl.runs.distributed import Ranks
from icrl.runs.summaries import Progress, Summaries
from icrl.training.inspection import inspect
from icrl.training.noise_scale import Loss, NoiseScale

if TYPE_CHECKING:
    from icrl.config.root import Config

_LINES = 10  # log lines in a whole run; TensorBoard has all points
_LOGGED = ("loss", "accuracy")


class Board:
    """Shows the updates that are due. Every rank has one, as averages are of all ranks; only the writer's shows."""

    def __init__(
        self, config: Config, objective: Objective, ranks: Ranks, summaries: Summaries | None, progress: Progress
    ) -> None:
        self._options, self._objective, self._ranks = config.summaries, objective, ranks
        self._summaries, self._progress = summaries, progress
        self._total = config.trainer.num_iterations
        self._interval = interval_of(self._options.num_summaries, self._options.summary_interval, self._total)
        kind, size = self._options.gradient_noise_scale, config.trainer.mini_batch_size
        if kind != "none" and size < 2 * ranks.size:
            raise ConfigError(
                f"summaries.gradient_noise_scale={kind} needs parts of a batch; "
                f"trainer.mini_batch_size={size} is too small for {ranks.size} processes"
            )
        part = size // ranks.size // config.trainer.gradient_accumulation_steps
        self._noise_scale = NoiseScale(kind, part) if kind != "none" else None
        self._warned = False  # of values over their bound

    def is_due(self, update: int) -> bool:
        early = self._options.summarize_first_interval and update < self._interval
        return early or is_due(update, self._interval)

    def noise_scale(self, update: int, model: nn.Module, loss: Loss, batch: Batch) -> Metrics:
        """The gradient noise scale, where it is asked for; on a batch that the model has not learned from yet."""
        if self._noise_scale is None:
            return {}
        return self._noise_scale.measure(model, loss, batch, update, self._ranks.average, self._ranks.size)

    def show(self, update: int, metrics: dict[str, Tensor], others: Metrics, model: nn.Module, batch: Batch) -> None:
        """Points of one update: `metrics` of every rank, averaged, and `others`, which are of all ranks already."""
        means = self._ranks.average(torch.stack([value.detach().float() for value in metrics.values()]).cpu())
        values = dict(zip(metrics, means.tolist(), strict=True)) | others
        if self._summaries is None:
            return
        if values.get("q_over_bound", 0.0) > 1 and not self._warned:
            self._warned = True
            tqdm.write(
                f"update {update}: the largest |Q| is {values['q_over_bound']:.3g} times what a return can be "
                "(train/q_over_bound). If it stays above 1 the critic diverges: under another name=, a lower "
                "optimizer.learning_rate or critic.target_update_rate may help"
            )
        self._summaries.scalars("train", values, update)
        inspect(
            self._summaries,
            self._options,
            update,
            model.named_parameters(),
            lambda: self._policy(model, batch),
            batch._asdict(),
        )
        lines, before = (point * _LINES // self._total for point in (update, update - self._interval))
        if is_due(update, self._interval) and lines > before:
            self._progress.log({name: values[name] for name in _LOGGED if name in values})

    def state_dict(self) -> dict[str, Any]:
        """With all points on disk that were shown before."""
        if self._summaries:
            self._summaries.flush()
        return {"noise_scale": self._noise_scale.state_dict() if self._noise_scale else None}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if self._noise_scale and state["noise_scale"]:
            self._noise_scale.load_state_dict(state["noise_scale"])

    def _policy(self, model: nn.Module, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """What the model says of a batch, without dropout."""
        model.eval()
        with torch.no_grad():
            logits = self._objective.logits(model, batch)
        model.train()
        return logits.softmax(-1), {"logits": logits}
