"""Curves and histograms of the gradient loop: metrics of an update over all ranks, parameters, gradients, policies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from tqdm import tqdm

from icrl.contracts import Batch, Metrics, Objective
from icrl.runs.distributed import Ranks
from icrl.runs.metrics import MetricLogger, SummariesConfig

if TYPE_CHECKING:
    from icrl.config.root import Config


@dataclass
class UpdateCurves:
    """Curves of updates on a `MetricLogger`. Every rank has one, because averages are over all ranks."""

    config: Config
    objective: Objective
    ranks: Ranks
    logger: MetricLogger
    warned: bool = False  # of values above their bound

    def show(self, update: int, metrics: dict[str, Tensor], others: Metrics, model: nn.Module, batch: Batch) -> None:
        """Add the points of one update: this rank's `metrics`, and `others`, already averaged over ranks."""
        means = self.ranks.average(torch.stack([value.detach().float() for value in metrics.values()]).cpu())
        values = dict(zip(metrics, means.tolist(), strict=True)) | others
        if not self.logger.is_shown:
            return
        if values.get("q_over_bound", 0.0) > 1 and not self.warned:
            self.warned = True
            tqdm.write(
                f"update {update}: the largest |Q| is {values['q_over_bound']:.3g} times the largest return "
                "(train/q_over_bound). If it stays above 1 the critic diverges: under another name=, a lower "
                "optimizer.learning_rate or critic.target_update_rate may help"
            )
        self.logger.scalars("train", values, update)

        def policy() -> tuple[Tensor, dict[str, Tensor]]:
            with torch.no_grad():
                logits = self.objective.logits(model.eval(), batch)  # without dropout
            model.train()
            return logits.softmax(-1), {"logits": logits}

        inspect(self.logger, self.config.summaries, update, model.named_parameters(), policy, batch._asdict())
        if self.logger.line_due(update):
            self.logger.line({name: values[name] for name in ("loss", "accuracy") if name in values})


def inspect(
    logger: MetricLogger,
    options: SummariesConfig,
    step: int,
    parameters: Iterable[tuple[str, Tensor]],
    policy: Callable[[], tuple[Tensor, dict[str, Tensor]]],
    data: Mapping[str, Tensor],
    prefix: str = "",
) -> None:
    """Add the curves and histograms chosen by `options`: of parameters and gradients, of the `policy` (its action
    probabilities `[..., A]`, and outputs of its network), and of the data of the update. `prefix` precedes each tag,
    for curves with another step axis."""
    for name, parameter in parameters if options.grads_and_vars else ():
        for kind, tensor in (("value", parameter.detach()), ("gradient", parameter.grad)):
            if tensor is not None:
                norm = tensor.float().norm().item()
                logger.scalars(f"{prefix}parameters", {f"{kind}_norm/{name}": norm}, step)
                logger.histograms({f"{prefix}{kind}/{name}": tensor}, step)
    if options.action_distributions or options.outputs:
        probabilities, outputs = policy()
        if options.action_distributions:
            flat = probabilities.flatten(0, -2).float()
            entropy = -(flat * flat.clamp(min=1e-12).log()).sum(-1)  # in nats
            means = {f"probability_{action}": value for action, value in enumerate(flat.mean(0).tolist())}
            logger.scalars(f"{prefix}actions", means | {"entropy": entropy.mean().item()}, step)
            logger.histograms({f"{prefix}actions/entropies": entropy}, step)
        if options.outputs:
            logger.histograms({f"{prefix}outputs/{name}": value for name, value in outputs.items()}, step)
    if options.debug:
        logger.histograms({f"{prefix}data/{name}": column for name, column in data.items()}, step)
