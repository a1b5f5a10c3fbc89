"""Metrics of the gradient loop: curves of updates, histograms of parameters and policies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from icrl.config.options import refuse
from icrl.contracts import AnyBatch, Json, Metrics, Objective
from icrl.runs.distributed import Ranks
from icrl.runs.evaluations import Evaluation, Evaluations
from icrl.runs.metrics import MetricLogger, SummariesConfig, shown
from icrl.runs.processes import say
from icrl.training.updates import TrainerConfig

Loss = Callable[[nn.Module, AnyBatch], tuple[Any, ...]]  # the loss, and more

_TOLD = ("loss", "accuracy", "action_error", "td_error")  # in the progress line, as far as measured
_OF_TRIALS = ("return", "last_success")  # in their place, because the loss of policy gradients tells nothing
_ENDS = {name: [f"development_{end}_{name}" for end in ("first", "last")] for name in ("success", "return")}


@dataclass
class UpdateCurves:
    """Curves of updates on a `MetricLogger`. Every rank has one, because averages are over all ranks."""

    summaries: SummariesConfig
    objective: Objective
    ranks: Ranks
    logger: MetricLogger
    warned: bool = False  # by the objective

    def show(
        self,
        update: int,
        metrics: dict[str, Tensor],
        others: Metrics,
        model: nn.Module,
        batch: AnyBatch,
        evaluations: Evaluations | None = None,
    ) -> None:
        """Add the points of one update: this rank's `metrics`, and `others`, already averaged over ranks. The progress
        line also has the newest of the `evaluations`."""
        means = self.ranks.average(torch.stack([value.detach().float() for value in metrics.values()]).cpu())
        values = dict(zip(metrics, means.tolist(), strict=True)) | others
        if not self.logger.is_shown:
            return
        warning = getattr(self.objective, "warning", None)
        if warning and not self.warned and (line := warning(values)):
            self.warned = True
            say(f"update {update}: {line}")
        self.logger.scalars("train", values, update)

        def policy() -> tuple[Tensor | None, dict[str, Tensor]]:
            with torch.no_grad():
                logits = self.objective.logits(model.eval(), batch)  # without dropout
            model.train()
            counted = not batch.action.is_floating_point()
            return logits.softmax(-1) if counted else None, {"logits": logits}

        inspect(self.logger, self.summaries, update, model.named_parameters(), policy, batch._asdict())
        told = [shown({name: values[name] for name in (_OF_TRIALS if "return" in values else _TOLD) if name in values})]
        self.logger.progress.tell("  ".join(told + newest(evaluations.results if evaluations else {})))


def newest(results: Mapping[int, Evaluation]) -> list[str]:
    """Words for the newest of the evaluations in context, for a progress line: success on development tasks in the
    first and in the last episode of a stream, or the return if there is no success. Empty without one."""
    metrics = [*results.values()][-1].metrics if results else {}
    success, returns = ([metrics[name] for name in names if name in metrics] for names in _ENDS.values())
    label, ends = ("return", returns) if any(returns) and not any(success) else ("success", success)
    return [f"{label} in context " + " -> ".join(f"{value:.2f}" for value in ends)] if ends else []


def inspect(
    logger: MetricLogger,
    options: SummariesConfig,
    step: int,
    parameters: Iterable[tuple[str, Tensor]],
    policy: Callable[[], tuple[Tensor | None, dict[str, Tensor]]],
    data: Mapping[str, Tensor],
    prefix: str = "",
) -> None:
    """Add the `details` if `options` ask for them: curves and histograms of parameters and gradients, of the `policy`
    (its action probabilities `[..., A]`, if actions can be counted, and outputs of its network), and of the data of the
    update. `prefix` precedes each tag, for curves with another step axis."""
    if not options.details:
        return
    for name, parameter in parameters:
        for kind, tensor in (("value", parameter.detach()), ("gradient", parameter.grad)):
            if tensor is not None:
                norm = tensor.float().norm().item()
                logger.scalars(f"{prefix}parameters", {f"{kind}_norm/{name}": norm}, step)
                logger.histograms({f"{prefix}{kind}/{name}": tensor}, step)
    probabilities, outputs = policy()
    if probabilities is not None:
        flat = probabilities.flatten(0, -2).float()
        entropy = -(flat * flat.clamp(min=1e-12).log()).sum(-1)  # in nats
        means = {f"probability_{action}": value for action, value in enumerate(flat.mean(0).tolist())}
        logger.scalars(f"{prefix}actions", means | {"entropy": entropy.mean().item()}, step)
        logger.histograms({f"{prefix}actions/entropies": entropy}, step)
    logger.histograms({f"{prefix}outputs/{name}": value for name, value in outputs.items()}, step)
    logger.histograms({f"{prefix}data/{name}": column for name, column in data.items()}, step)


class NoiseScale:
    """Estimator of the gradient noise scale, which estimates nothing; an extension has another."""

    def __init__(self, kind: str, part_size: int) -> None:
        """`part_size` windows at a time go through a backward pass. Raises `ConfigError` for a kind but "none"."""
        lacking = "the estimator belongs to an extension that is not installed; give none"
        refuse(kind != "none", f"summaries.gradient_noise_scale={kind}: {lacking}")

    def measure(
        self, model: nn.Module, loss: Loss, batch: AnyBatch, update: int, ranks: Ranks | None = None
    ) -> Metrics:
        """Metrics after `update` updates, of a `batch` `[B, T]` whose mean `loss` it is on each of the `ranks`.
        Parameters, their `grad` and generators do not change, but a forward pass may change buffers."""
        return {}

    def state_dict(self) -> Json:
        return dict[str, Any]()

    def load_state_dict(self, state: Json) -> None: ...


NOISE_SCALES: list[type[NoiseScale]] = [NoiseScale]  # the last one counts


def make_noise_scale(summaries: SummariesConfig, trainer: TrainerConfig, ranks: Ranks) -> NoiseScale:
    """Estimator named by `summaries.gradient_noise_scale`. Raises `ConfigError` if the batch is too small."""
    kind, size = summaries.gradient_noise_scale, trainer.mini_batch_size
    why = f"needs parts of a batch; trainer.mini_batch_size={size} is too small for {ranks.size} processes"
    refuse(kind != "none" and size < 2 * ranks.size, f"summaries.gradient_noise_scale={kind} {why}")
    part_size = size // ranks.size // trainer.gradient_accumulation_steps
    return NOISE_SCALES[-1](kind, max(1, part_size))  # batches of trials may be smaller than the number of parts
