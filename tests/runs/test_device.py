"""How much memory there is, and errors that say that it ran out."""

import resource
import sys

import numpy as np
import pytest
import torch

from icrl.runs import device
from icrl.runs.device import free_memory, keep_freed_memory, ran_out

CPU = torch.device("cpu")
MEMINFO = "MemTotal:       100 kB\nMemAvailable:   60 kB\nSwapFree:       4 kB\nHugePages_Free: 0\n"


@pytest.mark.parametrize(
    ("meminfo", "limit", "expected"),
    [
        (MEMINFO, "max\n", 64 << 10),
        (MEMINFO, f"{1 << 62}\n", 64 << 10),
        (MEMINFO, "4096\n", 4096),
        ("MemTotal: 100 kB\n", "4096\n", None),
    ],
)
@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("0::/", "memory.max"),
        ("0::/job/step", "job/step/memory.max"),
        ("0::/job/step", "job/memory.max"),
        ("2:cpu:/other\n5:memory,hugetlb:/job", "memory/job/memory.limit_in_bytes"),
        ("5:memory:/job\n0::/", "memory/memory.limit_in_bytes"),
    ],
)
def test_memory_is_what_system_and_control_groups_leave(meminfo, limit, expected, line, path, tmp_path, monkeypatch):
    for name, text in (("meminfo", meminfo), ("own", f"{line}\n"), (f"groups/{path}", limit)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for name, value in (("_MEMINFO", "meminfo"), ("_OWN", "own"), ("_CGROUP", "groups")):
        monkeypatch.setattr(device, name, tmp_path / value)
    assert free_memory(CPU) == expected


def test_errors_that_say_that_memory_ran_out():
    for impossible in (
        *(lambda: torch.empty(1 << 60, dtype=torch.uint8), lambda: np.empty(1 << 60, np.uint8)),
        *(lambda: torch.arange(2).view(torch.long) + 2**70, lambda: np.empty(1 << 80, np.uint8)),
    ):
        with pytest.raises((MemoryError, RuntimeError, OverflowError, ValueError)) as raised:
            impossible()
        assert ran_out(raised.value)
    assert ran_out(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."))
    assert not ran_out(RuntimeError("mat1 and mat2 shapes cannot be multiplied")) and not ran_out(ValueError("3"))


@pytest.mark.skipif(sys.platform != "linux", reason="glibc")
def test_memory_that_is_freed_is_used_again_without_page_faults() -> None:
    keep_freed_memory()

    def faults() -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        _ = torch.ones(10_000_000), torch.ones(10_000_000)  # 19 500 pages of 4 kB
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    assert max([faults() for _ in range(12)][-4:]) < 100
