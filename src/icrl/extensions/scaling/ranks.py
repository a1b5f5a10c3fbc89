"""Data parallel training: one process per rank, each with its share of every batch.

`torchrun` starts the ranks, or a program starts them on its own machine (`in_ranks`). Otherwise there is one rank.
"""

import gc
import importlib
import os
import re
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import RLock
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from icrl.contracts import ConfigError, PipelineError, Stopped
from icrl.extensions.parallel.worker import Worker
from icrl.extensions.scaling.tied import LAUNCHER
from icrl.runs import SHARED
from icrl.runs.device import device_of
from icrl.runs.distributed import Group, Ranks

_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
_GREETING = timedelta(seconds=60)  # torchrun listens before it starts any process
_PATIENCE = timedelta(days=1)  # ranks wait while rank 0 evaluates; torchrun ends all if one dies
_POLL_SECONDS = 0.05  # seconds between two looks at ranks that have not joined yet
_EXIT = 5.0  # seconds in which a process that does not answer has ended
_INTERFACE = "GLOO_SOCKET_IFNAME"  # variable with the network interface of gloo


class LostRankError(PipelineError):
    """Another rank does not answer any more."""


@contextmanager
def _answered() -> Iterator[None]:
    """Context in which all ranks must answer: raises `LostRankError` if one has ended."""
    try:
        yield
    except RuntimeError as error:
        lost = "another process of this run has ended; the same command continues from the newest checkpoint"
        raise LostRankError(lost) from error


class JoinedRanks(Ranks):
    """Ranks that communicate through torch's process group."""

    def leave(self) -> None:
        self.size = 1

    def any(self, flag: bool) -> bool:
        return flag if self.size == 1 else any(bool(one) for one in self.gather(torch.tensor([int(flag)])))

    def average(self, values: Tensor) -> Tensor:
        if self.size == 1:
            return values
        total = values.clone()
        with _answered():
            dist.all_reduce(total)
        return total / self.size

    def average_gradients(self, model: nn.Module) -> None:
        gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        means = self.average(torch.cat([gradient.flatten() for gradient in gradients]))
        for gradient, mean in zip(gradients, means.split([each.numel() for each in gradients]), strict=True):
            gradient.copy_(mean.view_as(gradient))

    def gather(self, values: Tensor) -> list[Tensor]:
        if self.size == 1:
            return [values]
        gathered = [torch.empty_like(values) for _ in range(self.size)]
        with _answered():
            dist.all_gather(gathered, values)
        return gathered

    def concatenated(self, values: Tensor, dim: int) -> Tensor:
        sent = values.byte() if values.dtype == torch.bool else values  # gloo sends no bool
        return torch.cat(self.gather(sent.cpu().contiguous()), dim).to(values)

    def wrapped(self, model: nn.Module, device: torch.device) -> DistributedDataParallel | None:
        """On a CPU, where nothing overlaps, its hooks would cost more than the exchange."""
        return DistributedDataParallel(model, device_ids=[device]) if device.type == "cuda" else None

    def check_divides(self, batch_size: int, accumulation_steps: int) -> None:
        if batch_size % (self.size * accumulation_steps):
            raise ConfigError(
                f"trainer.mini_batch_size={batch_size} must be a multiple of {self.size} processes x "
                f"trainer.gradient_accumulation_steps={accumulation_steps}"
            )


def divides_windows(config: Any, size: int) -> bool:
    """True if `size` processes can share the batches of stage two, two windows each at least."""
    trainer, windows = config.trainer, config.trainer.mini_batch_size
    divides = windows % (size * trainer.gradient_accumulation_steps) == 0 and windows >= 2 * size
    return divides and config.optimizer.is_shared


def divides_streams(config: Any, size: int) -> bool:
    """True if `size` processes can share the streams of trials, as far as the options tell their number."""
    options, learned = config.finetune, config.tasks.num_train - config.data.num_development_tasks
    number = options.streams_of(max(0, learned))
    divides = (number if config.tasks.num_train else options.num_streams) % size == 0  # then so do any tasks
    return divides and number >= size * options.num_mini_batches


class Together(Group):
    """Processes that `in_ranks` or `torchrun` started."""

    def check_alone(self, program: str) -> None:
        size = os.environ.get("WORLD_SIZE", "1") if os.environ.get("RANK") else "1"
        if size != "1" and program not in SHARED:
            one = f"{program} runs in one process, without torchrun; several runs at a time need a name= each"
            raise ConfigError(f"WORLD_SIZE={size}: {one}")

    @contextmanager
    def joined(self, device: torch.device) -> Iterator[tuple[Ranks, torch.device]]:
        here = _HERE.get()
        if here is None and not os.environ.get("RANK"):
            yield Ranks(), device
            return
        # Defaults in this module hold the group that exists when it is imported, which torch's optimizers do: later,
        # and the group's threads would outlive `destroy_process_group`, and could abort the interpreter at its exit.
        importlib.import_module("torch.distributed.nn.functional")
        if here is not None:
            _join_here(here)
        else:
            device = _joined_by_torchrun(device)
        try:
            yield JoinedRanks(dist.get_rank(), dist.get_world_size()), device
        except Stopped:  # all ranks stop together
            _leave_group()
            raise
        _leave_group()  # not after other exceptions: it would wait for ever for the other ranks

    def size_for(self, program: str, config: Any, threads: int) -> int:
        """Two on a CPU if its batches divide, because the threads of one process wait for each other."""
        divides = divides_streams if program == "finetune" else divides_windows
        return 2 if threads >= 2 and device_of(config).type == "cpu" and divides(config, 2) else 1

    def in_ranks(self, main: Callable[[Any], Any], config: Any, size: int) -> Any:
        """This process is rank 0, the others ignore signals and end with it. `main` and `config` must be picklable.

        Raises `PipelineError` if one of the others dies or fails; the same command then continues."""
        if size == 1:
            return main(config)
        with TemporaryDirectory() as folder:
            store = str(Path(folder) / "store")
            others = [Worker(_follow, idle=False) for _ in range(size - 1)]
            token = _HERE.set(_Here(0, size, store, others))
            try:
                for rank, other in enumerate(others, 1):
                    other.give((main, config, _Here(rank, size, store)))
                return main(config)
            except LostRankError as error:
                raise PipelineError(_fate(others, _EXIT) or str(error)) from error
            finally:
                _HERE.reset(token)
                for other in others:
                    other.end()
                if dist.is_initialized():
                    _leave_group()


def _leave_group() -> None:
    gc.collect()  # a wrapped model in a reference cycle would keep the group, whose threads may abort the exit
    dist.destroy_process_group()


def _joined_by_torchrun(device: torch.device) -> torch.device:
    """Join the group that the environment describes; returns the device of this rank."""
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
    _join("cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo")
    return device


def _checked_environment() -> int:
    """Value of LOCAL_RANK. Raises `ConfigError` if a variable that torchrun sets is missing or out of range."""
    if missing := [name for name in _VARIABLES if not os.environ.get(name)]:
        raise ConfigError(
            f"RANK={os.environ['RANK']} is set in the environment, but not {', '.join(missing)}: torchrun sets all of "
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


class _Here(NamedTuple):
    """Group of processes of this machine, as one of them sees it."""

    rank: int
    size: int
    store: str  # file through which they find each other
    others: Sequence[Worker] = ()  # that rank 0 has started


_HERE: ContextVar[_Here | None] = ContextVar("group that this process is to join", default=None)


def _follow(part: tuple[Callable[[Any], object], Any, _Here]) -> None:
    """Part of another rank than 0 in `in_ranks`."""
    importlib.import_module("tqdm").tqdm.set_lock(RLock())  # one of processes would outlive this one
    main, config, here = part
    _HERE.set(here)
    main(config)


def _fate(others: Sequence[Worker], patience: float) -> str:
    """Words for the first of the `others` that dies or fails within `patience` seconds; empty if none does."""
    for rank, other in enumerate(others, 1):
        try:
            answer = other.answer(patience)
        except (EOFError, OSError):
            died = f"process {rank} of the training died (exit code {other.end(_EXIT)})"
            return f"{died}; the same command continues from the newest checkpoint"
        if answer:
            return f"process {rank} of the training failed: {answer.strip().splitlines()[-1]}"
    return ""


def _join_here(here: _Here) -> None:
    """Create the process group of `here`, on the loopback interface. Raises `PipelineError` if one of the others dies
    or fails before it joins."""
    store, names = dist.FileStore(here.store, here.size), [f"rank-{rank}" for rank in range(here.size)]
    store.set(names[here.rank], "here")
    while here.others and not store.check(names):  # the others end with rank 0
        if fate := _fate(here.others, _POLL_SECONDS):
            raise PipelineError(fate)
    before = os.environ.get(_INTERFACE)
    os.environ[_INTERFACE] = next(name for _, name in socket.if_nameindex() if name.startswith("lo"))
    try:
        dist.init_process_group("gloo", store=store, rank=here.rank, world_size=here.size, timeout=_PATIENCE)
    finally:
        if before is None:
            del os.environ[_INTERFACE]
        else:
            os.environ[_INTERFACE] = before


def run_together(number: str, restarts: str, *command: str) -> None:
    """Run `command`, a program with its options, in `number` processes of this machine, and start all again if one is
    lost, at most `restarts` times. All end with the parent of this process."""
    os.environ[LAUNCHER] = str(os.getpid())
    torchrun = importlib.import_module("torch.distributed.run").main  # imports much that a rank does not need
    torchrun(["--standalone", "--nproc-per-node", number, "--max-restarts", restarts, "-m", "icrl", *command])


if __name__ == "__main__":
    run_together(*sys.argv[1:])
