"""Processes that train one model together, each with its share of every batch.

Here a process is alone, and nothing communicates. An extension that joins several puts its `Group` into `GROUPS`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from icrl.config.modules import load_plugins


class Ranks:
    """Processes that train one model: the `rank` of this one among `size`. Methods are called by all ranks; those of
    one rank change nothing.

    Rank 0, the writer, writes checkpoints and curves, and evaluates."""

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size, self.is_writer = rank, size, rank == 0

    def leave(self) -> None:
        """Stop communicating, because this rank has failed and the others may no longer wait for it."""

    def any(self, flag: bool) -> bool:
        """Combine the flags of all ranks: true if one is."""
        return flag

    def average(self, values: Tensor) -> Tensor:
        """Mean of a tensor over all ranks."""
        return values

    def average_gradients(self, model: nn.Module) -> None:
        """Set each gradient to its mean over all ranks, in one exchange. The same parameters must have gradients."""

    def gather(self, values: Tensor) -> list[Tensor]:
        """CPU tensors of all ranks, returned on every rank; shapes must agree."""
        return [values]

    def concatenated(self, values: Tensor, dim: int) -> Tensor:
        """Tensors of all ranks, of one shape, behind each other along `dim` in the order of ranks."""
        return values

    def wrapped(self, model: nn.Module, device: torch.device) -> Any:
        """The model in a wrapper that averages gradients while they are computed; None: `average_gradients` does."""
        return None

    def check_divides(self, batch_size: int, accumulation_steps: int) -> None:
        """Raise `ConfigError` unless every rank and part gets the same number of windows."""


class Group:
    """Ways in which ranks are started and find each other. Here there is one rank."""

    @contextmanager
    def joined(self, device: torch.device) -> Iterator[tuple[Ranks, torch.device]]:
        """Ranks with which this process was started, and its device."""
        yield Ranks(), device

    def size_for(self, program: str, config: Any, threads: int) -> int:
        """Processes of this machine that share a training `program` best, on `threads` threads of the CPU."""
        return 1

    def in_ranks(self, main: Callable[[Any], Any], config: Any, size: int) -> Any:
        """Result of `main(config)`, which opens one run, in `size` processes of this machine."""
        return main(config)

    def check_alone(self, program: str) -> None:
        """Raise `ConfigError` if several ranks of a `program` were started that runs in one process."""


GROUPS = [Group()]  # extensions append theirs; the last one counts


def process_group() -> Group:
    """How this process gets its ranks."""
    load_plugins()
    return GROUPS[-1]
