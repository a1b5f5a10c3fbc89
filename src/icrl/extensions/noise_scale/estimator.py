"""Gradient noise scale, from two parts of a batch."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from icrl.config.options import refuse
from icrl.contracts import AnyBatch, Json, Metrics
from icrl.runs.distributed import Ranks
from icrl.runs.metrics import SummariesConfig
from icrl.training.updates import TrainerConfig

_DECAY = 0.999  # of the moving averages, for each update
Loss = Callable[[nn.Module, AnyBatch], tuple[Any, ...]]  # the loss, and more


class GradientNoiseScale:
    """Gradient noise scale: the batch size, in windows, at which noise and signal of the gradient are equal.

        GNS = tr(Sigma) / |G|^2        (McCandlish et al., 2018, "An Empirical Model of Large-Batch Training", B_simple)

    G is the gradient of the expected loss and Sigma the covariance of the gradient of a single window. Batches much
    smaller than GNS gain almost linearly from more windows, much larger ones hardly at all. GNS is estimated from the
    gradients of two parts of one batch.

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
        self._kind, self._part_size = kind, part_size
        # weight: of all measurements in the averages; valid: the last valid estimate; update: of the last measurement
        self._state: Json = {"weight": 0.0, "signal": 0.0, "noise": 0.0, "valid": None, "update": 0}

    def measure(
        self, model: nn.Module, loss: Loss, batch: AnyBatch, update: int, ranks: Ranks | None = None
    ) -> Metrics:
        """Metrics after `update` updates: `gradient_noise_scale` in windows and the averages behind it; empty until an
        estimate is positive, and for a single window, of which batches of trials may be.

        Samples are windows, because steps of one window are correlated. The batch `[B, T]` has them in random order
        (those of trials longer than a context are in order and correlated: noise is then too large), and `loss` is
        their mean. Each of the `ranks` has B windows. If an estimate is negative or not finite, the last
        valid one is kept. Parameters, their `grad` and generators do not change; a forward pass may change buffers."""
        size, state, ranks = len(batch[0]), self._state, ranks or Ranks()
        if self._kind == "none" or size < 2:
            return {}
        halves = self._kind == "alternative"
        cut, end = (size // 2, size // 2 * 2) if halves else (max(1, size // 10), size)
        devices = {parameter.device for parameter in model.parameters() if parameter.is_cuda}
        with torch.random.fork_rng(devices):  # a measurement must not change the numbers of dropout
            parts = [self._gradient(model, loss, batch, *part) for part in ((0, cut), (cut, end))]
        a, b = (ranks.average(part) for part in parts)
        if halves:
            signal, mean = torch.stack([a.dot(b), (a.dot(a) + b.dot(b)) / 2]).tolist()
            noise = (mean - signal) * cut * ranks.size
        else:
            whole = a.lerp(b, 1 - cut / size)
            of_small, of_all = torch.stack([a.dot(a), whole.dot(whole)]).tolist()
            signal = (size * of_all - cut * of_small) / (size - cut)
            noise = (of_small - of_all) / (1 / cut - 1 / size) * ranks.size
        if math.isfinite(signal) and math.isfinite(noise):
            rate = 1 - _DECAY ** (update - state["update"])
            for name, value in (("weight", 1.0), ("signal", signal), ("noise", noise)):
                state[name] += rate * (value - state[name])
            if state["signal"] > 0 and state["noise"] >= 0:
                eps = 0.0 if halves else 1e-8
                state["valid"] = state["noise"] / (state["signal"] + eps * state["weight"])
        state["update"] = update
        if state["valid"] is None:
            return {}
        # Dividing by the sum of weights makes the first values unbiased, as in Adam.
        averages = {f"gradient_{name}": state[name] / state["weight"] for name in ("signal", "noise")}
        return {"gradient_noise_scale": state["valid"]} | averages

    def state_dict(self) -> Json:
        """Plain numbers, and None."""
        return dict(self._state)

    def load_state_dict(self, state: Json) -> None:
        self._state |= state

    def _gradient(self, model: nn.Module, loss: Loss, batch: AnyBatch, start: int, stop: int) -> Tensor:
        """Flat gradient of the mean loss of windows `start` to `stop`; `grad` does not change."""
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        size = sum(parameter.numel() for parameter in parameters)
        total = torch.zeros(size, dtype=parameters[0].dtype, device=parameters[0].device)
        for first in range(start, stop, self._part_size):
            part = batch._make(column[first : min(first + self._part_size, stop)] for column in batch)
            mean, *_ = loss(model, part)
            gradients = torch.autograd.grad(mean, parameters, materialize_grads=True)
            total += torch.cat([gradient.flatten() for gradient in gradients]) * (len(part[0]) / (stop - start))
        return total


def make_noise_scale(summaries: SummariesConfig, trainer: TrainerConfig, ranks: Ranks) -> GradientNoiseScale:
    """Estimator named by `summaries.gradient_noise_scale`. Raises `ConfigError` if the batch is too small."""
    kind, size = summaries.gradient_noise_scale, trainer.mini_batch_size
    why = f"needs parts of a batch; trainer.mini_batch_size={size} is too small for {ranks.size} processes"
    refuse(kind != "none" and size < 2 * ranks.size, f"summaries.gradient_noise_scale={kind} {why}")
    part_size = size // ranks.size // trainer.gradient_accumulation_steps
    return GradientNoiseScale(kind, max(1, part_size))  # batches of trials may be smaller than the number of parts
