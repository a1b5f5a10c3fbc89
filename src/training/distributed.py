"""Data parallel training under `torchrun`: one process per rank, each with its share of every batch.

Without `torchrun` there is one rank, and nothing here talks to anybody.
"""

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn

from src.contracts import ConfigError, PipelineError, Stopped

_PATIENCE = timedelta(days=1)  # others wait while the first rank evaluates; torchrun ends them when one has died
_TOLERANCE = 1e-6  # between the statistics of a parameter on two ranks


class Ranks:
    """The processes that train one model together: this one's `rank` among `size`."""

    def __init__(self, rank: int = 0, size: int = 1, device: torch.device | None = None) -> None:
        self.rank, self.size, self._device = rank, size, device

    @property
    def is_writer(self) -> bool:
        """Whether this process writes checkpoints and curves, and evaluates."""
        return self.rank == 0

    def any(self, flag: bool) -> bool:
        """Whether `flag` is true on any rank, the same answer on all."""
        if self.size == 1:
            return flag
        flags = torch.tensor(int(flag))
        dist.all_reduce(flags, op=dist.ReduceOp.MAX)
        return bool(flags)

    def average(self, values: Tensor) -> Tensor:
        """The mean of a tensor over all ranks."""
        if self.size == 1:
            return values
        total = values.clone()
        dist.all_reduce(total)
        return total / self.size

    def gather(self, values: Tensor) -> list[Tensor]:
        """A CPU tensor of every rank, on all of them; shapes must agree."""
        if self.size == 1:
            return [values]
        found = [torch.empty_like(values) for _ in range(self.size)]
        dist.all_gather(found, values)
        return found

    def check_equal(self, model: nn.Module, update: int) -> None:
        """Raise `PipelineError` where mean or norm of a parameter differs between ranks."""
        named = list(model.named_parameters())
        statistics = [torch.stack([p.detach().double().mean(), p.detach().double().norm()]).cpu() for _, p in named]
        first, *others = self.gather(torch.stack(statistics))
        for rank, other in enumerate(others, 1):
            same = torch.isclose(other, first, rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True).all(dim=1)
            if not same.all():
                names = ", ".join(name for (name, _), agrees in zip(named, same, strict=True) if not agrees)
                raise PipelineError(f"after update {update} rank {rank} has other parameters than rank 0: {names}")

    def check_divides(self, batch_size: int, accumulation_steps: int) -> None:
        """Raise `ConfigError` unless a batch can be dealt out evenly."""
        if batch_size % (self.size * accumulation_steps):
            raise ConfigError(
                f"trainer.mini_batch_size={batch_size} must be a multiple of {self.size} processes x "
                f"trainer.gradient_accumulation_steps={accumulation_steps}"
            )


@contextmanager
def joined(device: torch.device) -> Iterator[tuple[Ranks, torch.device]]:
    """This process among those that `torchrun` started, and its own device; alone where `torchrun` was not used."""
    if "RANK" not in os.environ:
        yield Ranks(), device
        return
    if device.index is not None:
        raise ConfigError(
            f"device.type={device}: each process that torchrun started takes a GPU of its own; give device.type=cuda"
        )
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    # Defaults in this module hold the group that exists when it is imported, which torch's optimizers do: later, and
    # the group's threads would outlive `destroy_process_group`, and could abort the interpreter at its exit.
    importlib.import_module("torch.distributed.nn.functional")
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, timeout=_PATIENCE)
    try:
        yield Ranks(dist.get_rank(), dist.get_world_size(), device), device
    except Stopped:  # all ranks stop together
        dist.destroy_process_group()
        raise
    dist.destroy_process_group()  # not after another exception: the others may be waiting, and would for ever
