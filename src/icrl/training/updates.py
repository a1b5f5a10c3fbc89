"""Gradient update: precision, accumulation, data parallel averaging, clipping, step."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Self, cast

import torch
from pydantic import model_validator
from torch import Tensor, nn

from icrl.config.options import NO_EFFECT, Options, option, refuse
from icrl.config.schedules import Clock, make_schedule
from icrl.contracts import AnyBatch, Metrics, Objective
from icrl.runs.device import bfloat16_gain
from icrl.runs.distributed import Ranks
from icrl.runs.processes import say
from icrl.training.optimizers import make_optimizer, rules, set_rates

if TYPE_CHECKING:
    from icrl.app.root import Config

_LEAST_GAIN = 1.5  # casts take a part of what faster products save


class TrainerConfig(Options):
    num_iterations: int = option(2000, "gradient updates", ge=1, is_budget=True)
    mini_batch_size: int = option(32, "windows per update, over all processes and accumulation steps", ge=1)
    mini_batch_length: int = option(0, "env steps in a window (0: model.context_len)", ge=0)
    gradient_accumulation_steps: int = option(
        1, "parts into which the windows of an update are split, one after the other, to save memory", ge=1
    )
    evaluate: bool = option(True, "evaluate in context during training (evals.*), and keep the best checkpoint")
    activation_checkpointing: bool = option(
        False, "keep only the input of each block and recompute the rest, to save memory"
    )
    compile: bool = option(False, "torch.compile: slower to start, faster to run; needs a C++ compiler")

    former = {"seeds": NO_EFFECT, "empty_cache": NO_EFFECT, "parameter_check_interval": NO_EFFECT}

    @model_validator(mode="after")
    def _check(self) -> Self:
        parts, size = self.gradient_accumulation_steps, self.mini_batch_size
        refuse(size % parts, f"trainer.gradient_accumulation_steps={parts} must divide trainer.mini_batch_size={size}")
        return self


class Updater:
    """Updater of `model`, in place. All state except the model's is in `state_dict`. `after_step` is called after each
    change of the parameters."""

    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        config: Config,
        device: torch.device,
        ranks: Ranks,
        after_step: Callable[[], None] | None = None,
    ) -> None:
        self.objective, self.config = objective, config.trainer
        self.optimizer = make_optimizer(model, config.optimizer)
        alone = f"optimizer.name={config.optimizer.name} cannot share batches: it needs one process"
        refuse(not config.optimizer.is_shared and ranks.size > 1, f"{alone}, not {ranks.size} processes")
        self._step = rules()[config.optimizer.name].step
        self.model, self.optimizer_config, self.after_step = model, config.optimizer, after_step
        self.max_norm = make_schedule(config.optimizer.max_gradient_norm)
        self._device, self.ranks, self.precision = device, ranks, _precision(config, objective, device, ranks)
        self.scaler = torch.amp.GradScaler(device.type, enabled=self.precision == "float16")
        self.parallel = ranks.wrapped(model, device)
        self.forward: nn.Module = self.parallel or model
        if self.config.compile:
            self.forward = cast(nn.Module, torch.compile(self.forward))

    def update(self, batch: AnyBatch, clock: Clock) -> dict[str, Tensor]:
        """Optimizer step on this rank's share of a batch, with the gradient of the mean loss over all ranks. Returns
        this rank's mean loss and metrics, and the norm of the full gradient before clipping."""
        set_rates(self.optimizer, self.optimizer_config, clock)
        self.optimizer.zero_grad()
        chunks = (column.chunk(self.config.gradient_accumulation_steps) for column in batch)
        parts, max_norm = [batch._make(part) for part in zip(*chunks, strict=True)], self.max_norm(clock)
        if self._step:
            each, norm = self._step(self, parts, max_norm)
        else:
            each = list[dict[str, Tensor]]()
            for number, part in enumerate(parts, 1):
                last = number == len(parts)  # ranks exchange their gradients once, with the last part
                with nullcontext() if last or self.parallel is None else self.parallel.no_sync():
                    loss, _, metrics_of_part = self.loss(self.forward, part)
                    self.scaler.scale(loss / (len(batch[0]) / len(part[0]))).backward()
                each.append(metrics_of_part)
            norm = self._descend(max_norm)
        shares = [len(part[0]) * len(parts) / len(batch[0]) for part in parts]  # the last part may be smaller
        metrics = {
            name: torch.stack([found[name] * share for found, share in zip(each, shares, strict=True)]).mean()
            for name in each[0]
        }
        return metrics | {"gradient_norm": norm}

    def _descend(self, max_norm: float) -> Tensor:
        """Step with the gradients of all parameters, clipped to `max_norm`; returns their norm before."""
        if self.parallel is None:
            self.ranks.average_gradients(self.model)
        self.scaler.unscale_(self.optimizer)
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), max_norm)
        scale = self.scaler.get_scale() if self.after_step else 0.0  # waits for the device
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if self.after_step and self.scaler.get_scale() >= scale:  # else infinite gradients: no step was made
            self.after_step()
        return norm

    def loss(self, model: nn.Module, batch: AnyBatch) -> tuple[Tensor, dict[str, Tensor], dict[str, Tensor]]:
        """Weighted sum of the objective's terms in training precision, the terms, and metrics: the sum, those of the
        objective, and the terms if there are several."""
        with self.autocast():
            terms, metrics = self.objective(model, batch)
        loss = torch.stack([self.objective.weights[name] * term for name, term in terms.items()]).sum(0)
        several = {name: term.detach() for name, term in terms.items()} if len(terms) > 1 else {}
        return loss, terms, {"loss": loss.detach()} | metrics | several

    def autocast(self) -> torch.autocast:
        """Context in which products have training precision."""
        enabled = self.precision != "none"
        return torch.autocast(self._device.type, getattr(torch, self.precision) if enabled else None, enabled=enabled)

    def watched(self, metrics: dict[str, Tensor]) -> dict[str, Tensor]:
        """Results of `update` that must be finite: the loss, its terms and the gradient norm. With float16 an infinite
        gradient only lowers the loss scale, so its norm is reported as 0, unless the scale has become subnormal."""
        terms = (name for name in self.objective.weights if name in metrics)
        watched = {name: metrics[name] for name in ("loss", *terms, "gradient_norm")}
        if self.scaler.is_enabled():
            scale = self.scaler.scale(torch.ones((), device=self._device))
            usable = scale >= torch.finfo(torch.float16).smallest_normal
            watched["gradient_norm"] = watched["gradient_norm"].masked_fill(usable, 0.0)
        return watched

    def rates(self) -> Metrics:
        """Learning rate of the last update and, with float16, the new loss scale. Waits for the device."""
        rates = {"learning_rate": self.optimizer.param_groups[0]["lr"]}
        return rates | {"loss_scale": self.scaler.get_scale()} if self.scaler.is_enabled() else rates

    def state_dict(self) -> dict[str, Any]:
        state = {"optimizer": self.optimizer.state_dict(), "scaler": self.scaler.state_dict()}
        return state | {"precision": self.precision}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(state["optimizer"])
        self.scaler.load_state_dict(state["scaler"])
        self.precision = state.get("precision", self.precision)  # that of the run, whatever was measured now


def _precision(config: Config, objective: Objective, device: torch.device, ranks: Ranks) -> str:
    """Precision of products. `device.amp_dtype=auto` is bfloat16 only for an objective that learns as well in it, and
    says so (`low_precision`): values, and numbers that are observed or chosen, need more digits."""
    if config.device.amp_dtype != "auto":
        return config.device.amp_dtype
    if not getattr(objective, "low_precision", False) or config.device.dtype != "float32":
        return "none"
    gain = ranks.average(torch.tensor(bfloat16_gain(device), device=device)).item()  # all ranks must agree
    precision = "bfloat16" if gain >= _LEAST_GAIN else "none"
    if ranks.is_writer:
        say(f"device.amp_dtype=auto: {precision}, because bfloat16 is {gain:.1f} times as fast as float32 here")
    return precision
