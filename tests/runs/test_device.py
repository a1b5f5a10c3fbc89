"""Memory that ran out, and memory that is freed."""

import resource
import sys

import numpy as np
import pytest
import torch

from icrl.runs.device import keep_freed_memory, ran_out


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
