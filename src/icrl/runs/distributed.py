"""Data parallel training under `torchrun`: one process per rank, each with its share of every batch.

Without `torchrun` there is one rank, and nothing here communicates.
"""

import gc
import importlib
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn

from icrl.contracts import ConfigError, PipelineError, Stopped
from icrl.runs.processes import end_with_parent

_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
_GREETING = timedelta(seconds=60)  # torchrun listens before it starts any process
_PATIENCE = timedelta(days=1)  # ranks wait while rank 0 evaluates; torchrun ends all if one dies
_TOLERANCE = 1e-6  # between the statistics of a parameter on two ranks


def check_alone(program: str, why: str) -> None:
    """Raise `ConfigError` if `torchrun` started several processes of a `program` that runs in one."""
    size = os.environ.get("WORLD_SIZE", "1") if os.environ.get("RANK") else "1"
    if size != "1":
        raise ConfigError(f"WORLD_SIZE={size}: {program} runs in one process, without torchrun, because {why}")


class Ranks:
    """Process group that trains one model: the `rank` of this process among `size`. Methods are called by all ranks.

    Rank 0, the writer, writes checkpoints and curves, and evaluates."""

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size, self.is_writer = rank, size, rank == 0

    def leave(self) -> None:
        """Stop communicating, because this rank has failed and the others may no longer wait for it."""
        self.size = 1

    def any(self, flag: bool) -> bool:
        """Combine the flags of all ranks: true if one is."""
        return flag if self.size == 1 else any(bool(one) for one in self.gather(torch.tensor([int(flag)])))

    def average(self, values: Tensor) -> Tensor:
        """Mean of a tensor over all ranks."""
        if self.size == 1:
            return values
        total = values.clone()
        dist.all_reduce(total)
        return total / self.size

    def gather(self, values: Tensor) -> list[Tensor]:
        """CPU tensors of all ranks, returned on every rank; shapes must agree."""
        if self.size == 1:
            return [values]
        found = [torch.empty_like(values) for _ in range(self.size)]
        dist.all_gather(found, values)
        return found

    def check_equal(self, model: nn.Module, update: int) -> None:
        """Raise `PipelineError` if the mean or the norm of a parameter differs between ranks."""
        named = dict(model.named_parameters())
        statistics = [torch.stack([p.detach().double().mean(), p.detach().double().norm()]) for p in named.values()]
        first, *others = self.gather(torch.stack(statistics).cpu())
        for rank, other in enumerate(others, 1):
            same = torch.isclose(other, first, rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True).all(dim=1)
            if names := ", ".join(name for name, agrees in zip(named, same, strict=True) if not agrees):
                raise PipelineError(f"after update {update} rank {rank} differs from rank 0 in the parameters {names}")

    def check_divides(self, batch_size: int, accumulation_steps: int) -> None:
        """Raise `ConfigError` unless every rank and part gets the same number of windows."""
        if batch_size % (self.size * accumulation_steps):
            raise ConfigError(
                f"trainer.mini_batch_size={batch_size} must be a multiple of {self.size} processes x "
                f"trainer.gradient_accumulation_steps={accumulation_steps}"
            )


@contextmanager
def joined(device: torch.device) -> Iterator[tuple[Ranks, torch.device]]:
    """Ranks started by `torchrun` and the device of this one; a single rank without `torchrun`."""
    if not os.environ.get("RANK"):
        yield Ranks(), device
        return
    local_rank = _checked_environment()
    if device.index is not None:
        raise ConfigError(f"device.type={device}: each process of torchrun needs its own GPU; give device.type=cuda")
    if device.type == "cuda":
        if local_rank >= (num_gpus := torch.cuda.device_count()):
            raise ConfigError(
                f"LOCAL_RANK={local_rank}: each process needs its own GPU, and this machine has {num_gpus}; use "
                f"torchrun --nproc-per-node={num_gpus}, or give device.type=cpu"
            )
        device = torch.device("cuda", local_rank)
        torch.cuda.set_device(device)
    if dist.is_torchelastic_launched():  # other launchers may exit before their processes
        end_with_parent(1)
    # Defaults in this module hold the group that exists when it is imported, which torch's optimizers do: later, and
    # the group's threads would outlive `destroy_process_group`, and could abort the interpreter at its exit.
    importlib.import_module("torch.distributed.nn.functional")
    _join("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    try:
        yield Ranks(dist.get_rank(), dist.get_world_size()), device
    except Stopped:  # all ranks stop together
        _leave_group()
        raise
    _leave_group()  # not after other exceptions: it would wait for ever for the other ranks


def _leave_group() -> None:
    gc.collect()  # a wrapped model in a reference cycle would keep the group, whose threads may abort the exit
    dist.destroy_process_group()


def _checked_environment() -> int:
    """Value of LOCAL_RANK. Raises `ConfigError` if a variable that torchrun sets is missing or out of range."""
    if missing := [name for name in _VARIABLES if not os.environ.get(name)]:
        raise ConfigError(
            f"RANK={os.environ['RANK']} is set in the environment, but {', '.join(missing)} not: torchrun sets all of "
            "them; start with it, or unset RANK to train in one process"
        )
    size = _number("WORLD_SIZE", 1, 10**6)
    _number("MASTER_PORT", 0, 2**16 - 1)
    _number("RANK", 0, size - 1, "WORLD_SIZE - 1 = ")
    return _number("LOCAL_RANK", 0, size - 1, "WORLD_SIZE - 1 = ")


def _number(name: str, low: int, high: int, because: str = "") -> int:
    value = os.environ[name]
    if not re.fullmatch("[0-9]{1,9}", value) or not low <= int(value) <= high:
        raise ConfigError(
            f"{name}={value} in the environment: must be an int from {low} to {because}{high}; start with torchrun, "
            "which sets it, or unset RANK to train in one process"
        )
    return int(value)


def _join(backend: str) -> None:
    """Create the process group. Raises `PipelineError` if MASTER_ADDR:MASTER_PORT does not answer."""
    hosted = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    try:
        store, rank, size = next(dist.rendezvous("env://", timeout=_GREETING if hosted else _PATIENCE))
    except dist.DistError as error:
        address = f"MASTER_ADDR:MASTER_PORT={os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        needed = "where torchrun or the process of RANK=0 should listen: start all processes again"
        raise PipelineError(f"nothing answers at {address}, {needed}") from error
    # After a restart torchrun's store still has the addresses of the processes that ended.
    store = dist.PrefixStore(f"restart-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    store.set_timeout(_PATIENCE)
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=_PATIENCE)


def run_together(number: str, restarts: str, *command: str) -> None:
    """Run `command`, a program with its options, in `number` processes of this machine, and start all again if one is
    lost, at most `restarts` times. All end with the parent of this process."""
    end_with_parent(1)
    torchrun = importlib.import_module("torch.distributed.run").main  # imports much that a rank does not need
    torchrun(["--standalone", "--nproc-per-node", number, "--max-restarts", restarts, "-m", "icrl", *command])


if __name__ == "__main__":
    run_together(*sys.argv[1:])
