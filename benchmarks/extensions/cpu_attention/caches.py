"""Attention of single queries to a cache of rows, and to one that PyTorch's kernel reads.

    python -m benchmarks.extensions.cpu_attention.caches

On one thread, with the heads of the default model (2 that share 1), of 100 and 400 tokens of 460 streams. `HAS_AMX` in
the extension's `plugin.py` chooses between them.
"""

import time
from functools import partial

import torch

from benchmarks.measure import Report, side_by_side
from icrl.extensions.cpu_attention.caches import DenseCache, RowCache

SHAPE = 1, 460, 1, 401, 32  # layers, streams, heads of keys, tokens, channels
CALLS = 20


def attend(cache: DenseCache | RowCache, tokens: int) -> int:
    """Attend to so many tokens and one more; returns the number of calls."""
    query, new = torch.ones(SHAPE[1], 2, 1, SHAPE[4]), torch.ones(*SHAPE[1:3], 1, SHAPE[4])
    cache.length = tokens
    for _ in range(CALLS):
        cache.attend(0, query, new, new)
    return CALLS


def main() -> None:
    torch.set_num_threads(1)
    report = Report("extensions.cpu_attention.caches")
    for dtype in (torch.float32, torch.bfloat16):
        rows, dense = RowCache(SHAPE, dtype), DenseCache(SHAPE, dtype)
        for column in (*rows.columns, *dense.columns):
            column.normal_()
        for tokens in (100, 400):
            name = f"{str(dtype).removeprefix('torch.')}, {tokens} tokens"
            ways = {
                f"{name}, {kind}": partial(attend, cache, tokens) for kind, cache in (("rows", rows), ("dense", dense))
            }
            report.show(f"Caches, {name}", side_by_side(ways, 7, time.process_time), "call", f"{name}, rows")


if __name__ == "__main__":
    main()
