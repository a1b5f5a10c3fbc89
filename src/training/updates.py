"""One gradient update: precision, accumulation, data parallel averaging, clipping, step."""

from contextlib import nullcontext
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from src.contracts import Batch, Metrics, Objective
from src.schedules import Clock, make_schedule
from src.training.distributed import Ranks
from src.training.optimizers import make_optimizer, set_rates
from src.training_schema import OptimizerConfig, TrainerConfig


class Updater:
    """Improves `model` in place. All its state but the model's is in `state_dict`."""

    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        optimizer: OptimizerConfig,
        trainer: TrainerConfig,
        device: torch.device,
        ranks: Ranks,
    ) -> None:
        self.objective, self.config = objective, trainer
        self.optimizer = make_optimizer(model, optimizer)
        self._model, self._optimizer_config = model, optimizer
        self._max_norm = make_schedule(optimizer.max_gradient_norm)
        self._device, self._ranks = device, ranks
        self._dtype = getattr(torch, trainer.amp_dtype)
        self.scaler = torch.amp.GradScaler(device.type, enabled=trainer.amp_dtype == "float16")
        self._parallel: DistributedDataParallel | None = None
        if ranks.size > 1:
            self._parallel = DistributedDataParallel(model, device_ids=[device] if device.type == "cuda" else None)
        self._forward: nn.Module = self._parallel or model
        if trainer.compile:
            self._forward = cast(nn.Module, torch.compile(self._forward))

    def update(self, batch: Batch, clock: Clock) -> dict[str, Tensor]:
        """One step on this rank's share of a batch: on the gradient of the mean loss over all ranks' windows. Returns
        the mean loss and metrics of this rank, and the norm of the whole gradient before it is clipped."""
        set_rates(self.optimizer, self._optimizer_config, clock)
        self.optimizer.zero_grad()
        steps = self.config.gradient_accumulation_steps
        found = [self._backward(part, index == steps - 1) for index, part in enumerate(_parts(batch, steps))]
        self.scaler.unscale_(self.optimizer)
        norm = nn.utils.clip_grad_norm_(self._model.parameters(), self._max_norm(clock))
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if self.config.empty_cache:
            torch.cuda.empty_cache()
        metrics = {name: torch.stack([part[name] for part in found]).mean() for name in found[0]}
        return metrics | {"gradient_norm": norm}

    def loss(self, model: nn.Module, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """The objective, in the precision of training."""
        with torch.autocast(self._device.type, self._dtype, enabled=self.config.enable_amp):
            return self.objective(model, batch)

    def rates(self) -> Metrics:
        """The learning rate of the last update and, with float16, the loss scale after it; waits for the device."""
        rates = {"learning_rate": self.optimizer.param_groups[0]["lr"]}
        return rates | {"loss_scale": self.scaler.get_scale()} if self.scaler.is_enabled() else rates

    def state_dict(self) -> dict[str, Any]:
        return {"optimizer": self.optimizer.state_dict(), "scaler": self.scaler.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(state["optimizer"])
        self.scaler.load_state_dict(state["scaler"])

    def _backward(self, part: Batch, last: bool) -> dict[str, Tensor]:
        """Add a part's gradient; ranks exchange theirs once, with the last part."""
        with nullcontext() if last or self._parallel is None else self._parallel.no_sync():
            loss, metrics = self.loss(self._forward, part)
            self.scaler.scale(loss / self.config.gradient_accumulation_steps).backward()
        return {"loss": loss.detach()} | metrics


def _parts(batch: Batch, number: int) -> list[Batch]:
    return [type(batch)(*part) for part in zip(*(column.chunk(number) for column in batch), strict=True)]
