"""Mean and deviation of the numbers that a model reads, over the histories that it learns from."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from icrl.data.windows import Mixture, Windows
from icrl.nn.encoders import Moments
from icrl.spaces import num_channels

_CHUNK = 2**16  # steps that are in float64 at a time


def moments_of(mixture: Mixture) -> Moments:
    """Moments over all steps of all selected rows, on the device of the windows. Each step counts once, whatever the
    shares of the stores are."""
    channels = num_channels(mixture.parts[0].spec.observation_space)
    obs, reward = (
        [_Steps(part, name, number) for part in mixture.parts] for name, number in (("obs", channels), ("reward", 1))
    )
    return Moments(*mean_and_std(obs), mean_and_std(reward)[1])


class _Steps(NamedTuple):
    """All steps of a column of windows, `[steps, channels]`, whether they are in memory or on disk."""

    part: Windows
    name: str
    channels: int

    def split(self, size: int) -> Iterator[Tensor]:
        for steps in self.part.split(self.name, size):
            yield steps.reshape(-1, self.channels)


def mean_and_std(columns: Sequence[Tensor | _Steps]) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation (divisor N) of each channel of `columns` `[N, C]` together, float32 `[C]` each. They
    are summed in float64, in a second pass around the mean, so that numbers far from 0 lose no digits."""

    def chunks() -> Iterator[Tensor]:
        for column in columns:
            yield from column.split(_CHUNK)

    total = sum(len(chunk) for chunk in chunks())
    mean = torch.stack([chunk.double().sum(0) for chunk in chunks()]).sum(0) / total
    squares = torch.stack([(chunk.double() - mean).square().sum(0) for chunk in chunks()])
    return mean.float(), (squares.sum(0) / total).sqrt().float()
