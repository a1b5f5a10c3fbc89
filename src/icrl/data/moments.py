"""Mean and deviation of the numbers that a model reads, over the histories that it learns from."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from icrl.data.windows import Mixture
from icrl.nn.encoders import Moments
from icrl.spaces import num_channels

_CHUNK = 2**16  # steps that are in float64 at a time


def moments_of(mixture: Mixture) -> Moments:
    """Moments over all steps of all selected rows, on the device of the windows. Each step counts once, whatever the
    shares of the stores are."""

    def of(name: str, channels: int) -> tuple[Tensor, Tensor]:
        return mean_and_std(
            lambda: (steps.reshape(-1, channels) for part in mixture.parts for steps in part.split(name, _CHUNK))
        )

    obs = of("obs", num_channels(mixture.parts[0].spec.observation_space))
    return Moments(*obs, of("reward", 1)[1])


def mean_and_std(chunks: Callable[[], Iterable[Tensor]]) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation (divisor N) of each channel of all `chunks()` `[N, C]` together, float32 `[C]` each.
    They are summed in float64, in a second pass around the mean, so that numbers far from 0 lose no digits."""
    total = sum(len(chunk) for chunk in chunks())
    mean = torch.stack([chunk.double().sum(0) for chunk in chunks()]).sum(0) / total
    squares = torch.stack([(chunk.double() - mean).square().sum(0) for chunk in chunks()])
    return mean.float(), (squares.sum(0) / total).sqrt().float()
