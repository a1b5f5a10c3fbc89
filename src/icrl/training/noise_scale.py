"""Gradient noise scale: the batch size, in windows, at which noise and signal of the gradient are equal.

    GNS = tr(Sigma) / |G|^2        (McCandlish et al., 2018, "An Empirical Model of Large-Batch Training", B_simple)

G is the gradient of the expected loss and Sigma the covariance of the gradient of a single window. Batches much smaller
than GNS gain almost linearly from more windows, much larger ones hardly at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from icrl.contracts import Batch, ConfigError, Json, Metrics
from icrl.runs.distributed import Ranks

if TYPE_CHECKING:
    from icrl.config.root import Config

Loss = Callable[[nn.Module, Batch], tuple[Tensor, dict[str, Tensor]]]
Gradients = Callable[[int, int], Tensor]  # windows from, to -> mean gradient over ranks

_DECAY = 0.999  # of the moving averages, for each update


class NoiseScale:
    """Estimator of the noise scale from the gradients of two parts of one batch.

    A mean gradient g_n of n windows has E|g_n|^2 = |G|^2 + tr(Sigma) / n. With parts a and b of the batch, unbiased:

    "alternative": halves of b = floor(B / 2) windows (an odd one is left out)
        |G|^2 ~ <g_a, g_b>        tr(Sigma) ~ ((|g_a|^2 + |g_b|^2) / 2 - <g_a, g_b>) b
    "paper" (appendix A.1): b = max(1, floor(B / 10)) windows, and as big batch all B, which hold these b
        |G|^2 ~ (B |g_B|^2 - b |g_b|^2) / (B - b)        tr(Sigma) ~ (|g_b|^2 - |g_B|^2) / (1 / b - 1 / B)

    The big batch needs no third gradient, as g_B = (b g_b + (B - b) g_rest) / B. Both estimates are averaged over time
    at a rate of 0.001 an update before they are divided; for "paper" 1e-8 is added to |G|^2. "none" measures nothing.
    """

    def __init__(self, kind: str, part_size: int) -> None:
        """`part_size` windows at a time go through a backward pass."""
        self._parts = {"none": None, "alternative": _halves, "paper": _small_and_all}[kind]
        self._eps = 1e-8 if kind == "paper" else 0.0
        self._part_size = part_size
        self._update = 0  # at the last measurement
        self._weight = 0.0  # of all measurements in the averages
        self._signal = 0.0
        self._noise = 0.0
        self._valid: float | None = None

    def measure(
        self,
        model: nn.Module,
        loss: Loss,
        batch: Batch,
        update: int,
        average: Callable[[Tensor], Tensor] = lambda gradient: gradient,
        num_ranks: int = 1,
    ) -> Metrics:
        """Metrics after `update` updates: `gradient_noise_scale` in windows and the averages behind it; empty until an
        estimate is positive.

        Samples are windows, because steps of one window are correlated. The batch `[B, T]` has them in random order,
        and `loss` is their mean. `average` maps a flat gradient to its mean over `num_ranks` ranks with B windows each.
        If an estimate is negative or not finite, the last valid one is kept. Parameters, their `grad` and generators do
        not change, but a forward pass may change buffers. Raises `ValueError` for B < 2."""
        if self._parts is None:
            return {}
        size = len(batch[0])
        if size < 2:
            raise ValueError(f"a gradient noise scale needs a batch of at least 2 windows, not {size}")
        devices = {parameter.device for parameter in model.parameters() if parameter.is_cuda}
        with torch.random.fork_rng(devices):  # a measurement must not change the numbers of dropout
            signal, noise = self._parts(
                lambda start, stop: average(self._gradient(model, loss, batch, start, stop)), size, num_ranks
            )
        if math.isfinite(signal) and math.isfinite(noise):
            self._add(signal, noise, _DECAY ** (update - self._update))
        self._update = update
        if self._valid is None:
            return {}
        return {
            "gradient_noise_scale": self._valid,
            "gradient_signal": self._signal / self._weight,
            "gradient_noise": self._noise / self._weight,
        }

    def state_dict(self) -> Json:
        """Plain numbers, and None."""
        averages = {"weight": self._weight, "signal": self._signal, "noise": self._noise}
        return averages | {"valid": self._valid, "update": self._update}

    def load_state_dict(self, state: Json) -> None:
        self._weight, self._signal, self._noise = state["weight"], state["signal"], state["noise"]
        self._valid, self._update = state["valid"], state["update"]

    def _gradient(self, model: nn.Module, loss: Loss, batch: Batch, start: int, stop: int) -> Tensor:
        """Flat gradient of the mean loss of windows `start` to `stop`; `grad` does not change."""
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        size = sum(parameter.numel() for parameter in parameters)
        total = torch.zeros(size, dtype=parameters[0].dtype, device=parameters[0].device)
        for first in range(start, stop, self._part_size):
            part = batch._make(column[first : min(first + self._part_size, stop)] for column in batch)
            mean, _ = loss(model, part)
            gradients = torch.autograd.grad(mean, parameters, materialize_grads=True)
            total += torch.cat([gradient.flatten() for gradient in gradients]) * (len(part[0]) / (stop - start))
        return total

    def _add(self, signal: float, noise: float, decay: float) -> None:
        """Update the averages; dividing by the sum of weights makes the first values unbiased, as in Adam."""
        self._weight += (1 - decay) * (1 - self._weight)
        self._signal += (1 - decay) * (signal - self._signal)
        self._noise += (1 - decay) * (noise - self._noise)
        if self._signal > 0 and self._noise >= 0:
            self._valid = self._noise / (self._signal + self._eps * self._weight)


def make_noise_scale(config: Config, ranks: Ranks) -> NoiseScale:
    """Estimator named by `summaries.gradient_noise_scale`. Raises `ConfigError` if the batch is too small."""
    kind, size = config.summaries.gradient_noise_scale, config.trainer.mini_batch_size
    if kind != "none" and size < 2 * ranks.size:
        raise ConfigError(
            f"summaries.gradient_noise_scale={kind} needs parts of a batch; "
            f"trainer.mini_batch_size={size} is too small for {ranks.size} processes"
        )
    return NoiseScale(kind, size // ranks.size // config.trainer.gradient_accumulation_steps)


def _halves(gradient: Gradients, size: int, num_ranks: int) -> tuple[float, float]:
    half = size // 2
    a, b = gradient(0, half), gradient(half, 2 * half)
    alpha, beta = torch.stack([a.dot(b), (a.dot(a) + b.dot(b)) / 2]).tolist()
    return alpha, (beta - alpha) * half * num_ranks


def _small_and_all(gradient: Gradients, size: int, num_ranks: int) -> tuple[float, float]:
    small = max(1, size // 10)
    g_small, g_rest = gradient(0, small), gradient(small, size)
    g_all = g_small.lerp(g_rest, 1 - small / size)
    of_small, of_all = torch.stack([g_small.dot(g_small), g_all.dot(g_all)]).tolist()
    signal = (size * of_all - small * of_small) / (size - small)
    return signal, (of_small - of_all) / (1 / small - 1 / size) * num_ranks
