"""Device, precision, seed and memory of a run."""

from __future__ import annotations

import ctypes
import math
import re
import sys
import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Annotated, Any, Literal, Self

import torch
from pydantic import model_validator
from torch import Tensor

from icrl.config.options import Options, Text, option, refuse
from icrl.contracts import ConfigError

_MMAP_MAX, _TRIM_THRESHOLD = -4, -1  # parameters of glibc's mallopt
_SIGNS = (  # of errors of PyTorch, NumPy and Python that have no class of their own
    "can't allocate memory|out of memory|Storage size calculation overflowed|int64_t without overflow|"
    "too large to convert to C|int too big to convert|Maximum allowed dimension exceeded|array is too big"
)


class DeviceConfig(Options):
    """Device and precision of a run."""

    type: Annotated[Text, "auto, cpu, cuda or cuda:N"] = option(
        "auto", "where tensors live: auto (a GPU if there is one), cpu, cuda, or cuda:N for GPU N", may_change=True
    )
    dtype: Literal["float32", "float64"] = option("float32", "dtype of parameters", stages="2, 3, 4")
    amp_dtype: Literal["auto", "none", "bfloat16", "float16"] = option(
        "none",
        "mixed precision: matrix products in bfloat16, or float16 with a loss scaler; auto: in stage two and in "
        "trials bfloat16 if a test at the start finds it faster on this machine, else none",
        stages="2, 3",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        known = re.fullmatch(r"auto|cpu|cuda(:(0|[1-9][0-9]*))?", self.type)
        refuse(not known, f"device.type={self.type}: must be auto, cpu, cuda or cuda:N")
        mixed = self.amp_dtype not in ("auto", "none") and self.dtype == "float64"
        refuse(mixed, f"device.amp_dtype={self.amp_dtype} needs device.dtype=float32, not {self.dtype}")
        return self


def prepare(config: Any) -> torch.device:
    """Set the number of threads and the global seed, and keep freed memory; returns the device to work on. `config`:
    that of any program with the options `num_threads`, `seed` and `device`."""
    keep_freed_memory()
    if config.num_threads:
        torch.set_num_threads(config.num_threads)
    torch.manual_seed(config.seed)
    return device_of(config)


def keep_freed_memory() -> None:
    """Let the C library keep memory that is freed. By default glibc gives large blocks back to the system, and each
    update of a model asks for them again: page faults were a fifth of the time of an update in bfloat16, and a third
    with `experiment=reference` (`benchmarks/freed_memory.py`). Does nothing with another C library."""
    if sys.platform == "linux" and (set_option := getattr(ctypes.CDLL(None), "mallopt", None)):
        set_option(_MMAP_MAX, 0)
        set_option(_TRIM_THRESHOLD, -1)


def device_of(config: Any) -> torch.device:
    """Device of all tensors. Raises `ConfigError` if it is a GPU that does not exist."""
    asked = config.device.type
    kind, _, number = asked.partition(":")
    num_gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if kind == "cuda" and not num_gpus:
        raise ConfigError(f"device.type={asked}: no GPU is available here; use device=cpu or device=auto")
    if number and int(number) >= num_gpus:
        raise ConfigError(f"device.type={asked}: this machine has cuda:0 to cuda:{num_gpus - 1}")
    return torch.device(("cuda" if num_gpus else "cpu") if asked == "auto" else asked)


def dtype_of(config: Any) -> torch.dtype:
    """Dtype of the parameters."""
    return getattr(torch, config.device.dtype)


@cache
def bfloat16_gain(device: torch.device) -> float:
    """How many times faster than in float32 `device` multiplies matrices in bfloat16, at the sizes of the default
    model: the best of a few tries of each, measured once in a process."""
    seconds = dict.fromkeys((torch.float32, torch.bfloat16), math.inf)
    for dtype in 8 * [*seconds]:
        one, two = torch.ones(2560, 64, dtype=dtype, device=device), torch.ones(64, 256, dtype=dtype, device=device)
        start = time.perf_counter()
        (one @ two).sum().item()  # waits for the device
        seconds[dtype] = min(seconds[dtype], time.perf_counter() - start)
    return seconds[torch.float32] / seconds[torch.bfloat16]


def ran_out(error: Exception) -> bool:
    """Recognise an error that means that an allocation exceeds the memory or the largest size."""
    return isinstance(error, MemoryError) or bool(re.search(_SIGNS, str(error)))


TensorFunction = Callable[..., Sequence[Tensor]]
# Ways to repeat a function, which draws no random numbers from PyTorch's generators, with the same results. Here it is
# called; extensions append theirs, and the last one counts.
REPEATED: list[Callable[[TensorFunction], TensorFunction]] = [lambda function: function]
