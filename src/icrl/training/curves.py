"""Curves and histograms of the gradient loop: the metrics of an update, averaged over all ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from tqdm import tqdm

from icrl.contracts import Batch, Metrics, Objective
from icrl.runs.distributed import Ranks
from icrl.runs.metrics import MetricLogger
from icrl.training.inspection import inspect

if TYPE_CHECKING:
    from icrl.config.root import Config

_LOGGED = ("loss", "accuracy")


class UpdateCurves:
    """Curves of updates on a `MetricLogger`. Every rank has one, because averages are over all ranks."""

    def __init__(self, config: Config, objective: Objective, ranks: Ranks, logger: MetricLogger) -> None:
        self._options, self._objective, self._ranks, self._logger = config.summaries, objective, ranks, logger
        self._warned = False  # of values above their bound

    def show(self, update: int, metrics: dict[str, Tensor], others: Metrics, model: nn.Module, batch: Batch) -> None:
        """Add the points of one update: this rank's `metrics`, and `others`, already averaged over ranks."""
        means = self._ranks.average(torch.stack([value.detach().float() for value in metrics.values()]).cpu())
        values = dict(zip(metrics, means.tolist(), strict=True)) | others
        if not self._logger.is_shown:
            return
        if values.get("q_over_bound", 0.0) > 1 and not self._warned:
            self._warned = True
            tqdm.write(
                f"update {update}: the largest |Q| is {values['q_over_bound']:.3g} times the largest return "
                "(train/q_over_bound). If it stays above 1 the critic diverges: under another name=, a lower "
                "optimizer.learning_rate or critic.target_update_rate may help"
            )
        self._logger.scalars("train", values, update)
        policy = lambda: self._policy(model, batch)  # noqa: E731
        inspect(self._logger, self._options, update, model.named_parameters(), policy, batch._asdict())
        if self._logger.line_due(update):
            self._logger.line({name: values[name] for name in _LOGGED if name in values})

    def _policy(self, model: nn.Module, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Action probabilities and logits of the model on a batch, without dropout."""
        model.eval()
        with torch.no_grad():
            logits = self._objective.logits(model, batch)
        model.train()
        return logits.softmax(-1), {"logits": logits}
