"""Free memory and disk space; a run that certainly needs more is refused before it starts."""

import shutil
from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import torch

from icrl.contracts import ConfigError

_MEMINFO = Path("/proc/meminfo")
_CGROUPS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))  # of v2, of v1
_SIGNS = (  # of errors of PyTorch, NumPy and Python that have no class of their own
    "can't allocate memory",
    "out of memory",
    "Storage size calculation overflowed",
    "int64_t without overflow",
    "too large to convert to C",
    "int too big to convert",
    "Maximum allowed dimension exceeded",
    "array is too big",
)


class Need(NamedTuple):
    """Lower bound on the bytes of a part, and the options that determine it."""

    what: str
    size: int
    options: tuple[str, ...]  # dotted keys


def free_memory(device: torch.device) -> int | None:
    """Free bytes on `device`; None if unknown. On a CPU this includes page cache and swap, up to the limit of the
    control group."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    try:
        lines = dict(line.split(":") for line in _MEMINFO.read_text(encoding="ascii").splitlines())
        found = sum(int(lines[key].split()[0]) << 10 for key in ("MemAvailable", "SwapFree"))
    except (OSError, KeyError, ValueError):  # not Linux
        return None
    limits = [path.read_text(encoding="ascii").strip() for path in _CGROUPS if path.exists()]
    return min([found, *(int(limit) for limit in limits if limit.isdecimal())])


def ran_out(error: Exception) -> bool:
    """Whether an error means that an allocation exceeds the memory or the largest size."""
    return isinstance(error, MemoryError) or any(sign in str(error) for sign in _SIGNS)


def free_disk(folder: Path) -> int:
    """Free bytes on the disk of `folder`, which need not exist yet."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    return shutil.disk_usage(there).free


def check_memory(config: Any, needs: Sequence[Need], device: torch.device) -> None:
    """Raise `ConfigError` if `device` has less memory than all `needs` of `config` together."""
    check_fits(config, needs, free_memory(device), f"memory of {device}" if device.type == "cuda" else "memory")


def check_fits(config: Any, needs: Sequence[Need], free: int | None, where: str) -> None:
    """Raise `ConfigError` with the largest of the `needs` and its options, unless all fit in `free` bytes."""
    total = sum(need.size for need in needs)
    if free is None or total <= free:
        return
    largest = max(needs, key=lambda need: need.size)
    given = " x ".join(f"{key}={reduce(getattr, key.split('.'), config)}" for key in largest.options)
    others = f" (and {_readable(total - largest.size)} for the rest)" if total > 1.01 * largest.size else ""
    raise ConfigError(
        f"{given} needs about {_readable(largest.size)} of {where} for {largest.what}{others}; {_readable(free)} are "
        "free: lower one of these options"
    )


def _readable(size: int) -> str:
    return f"{size / 1e9:,.1f} GB" if size >= 1e8 else f"{size / 1e6:,.1f} MB"
