"""Calibration of a model's action probabilities: does an action that it gives probability p come true with frequency p?

At each step of windows of histories, the model's confidence is the probability of its most probable action, and it is
right if that is the target: the recorded action, or the best one for decision pretraining. Steps are sorted into M = 10
bins of equal width by confidence. The expected calibration error (Naeini et al., 2015; Guo et al., 2017, "On
Calibration of Modern Neural Networks", arXiv 1706.04599) is

    ECE = sum over bins b of (n_b / n) |accuracy(b) - confidence(b)|

with n_b of all n steps in bin b, and means over the steps of the bin. 0 is a calibrated model. A source that explores
at random limits the accuracy, not the calibration. B windows, T steps, N steps of all windows.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from icrl.contracts import Batch, Json
from icrl.nn.gpt import GPT, Window, context_of
from icrl.nn.gpt_policy import Acting
from icrl.spaces import EnvSpec

NUM_BINS = 10
_AT_A_TIME = 32


@torch.no_grad()
def calibration(model: GPT | Acting, spec: EnvSpec, batch: Batch, target: str) -> Json:
    """Calibration of `model`, in eval mode, on windows `[B, T]`: see `reliability`. `target` is the column of the batch
    to predict."""
    found = list[Tensor]()
    for part in zip(*(column.split(_AT_A_TIME) for column in batch), strict=True):
        windows = Batch(*(column.to(model.device) for column in part))
        logits = model(context_of(Window.of(windows))).float()[..., : spec.num_actions]  # a head may predict more
        logits = spec.legal_of(logits, windows.obs)
        confidence, chosen = logits.softmax(-1).max(-1)
        found.append(torch.stack([confidence, (chosen == getattr(windows, target)).float()]).flatten(1))
    confidence, correct = torch.cat(found, 1).double().cpu()
    return reliability(confidence, correct)


def reliability(confidence: Tensor, correct: Tensor) -> Json:
    """Expected calibration `error`, mean `accuracy` and `confidence`, and for each bin that has steps its mean
    confidence, its accuracy and its share of the steps, given the confidence and 1 or 0 of each step, `[N]` float64.
    Bin b holds the confidences in (b / M, (b + 1) / M]."""
    number = (confidence * NUM_BINS).ceil().long().clamp(1, NUM_BINS) - 1
    count = torch.bincount(number, minlength=NUM_BINS)
    sums = torch.stack([torch.bincount(number, value, NUM_BINS) for value in (confidence, correct)])
    gaps = (sums[0] - sums[1]).abs()
    bins: list[Any] = [
        {"bin": b, "confidence": float(sums[0, b] / n), "accuracy": float(sums[1, b] / n), "share": n / len(number)}
        for b, n in enumerate(count.tolist())
        if n
    ]
    means = {"accuracy": float(correct.mean()), "confidence": float(confidence.mean())}
    return {"error": float(gaps.sum() / len(number)), **means, "bins": bins}
