"""Updates on long windows with attention in blocks of queries, and with all queries at once.

    python -m benchmarks.extensions.cpu_attention.long_windows

On one thread, with the default recipe on random windows of 400 and 800 steps.
"""

import time
from collections.abc import Callable
from functools import partial

import torch

from benchmarks.measure import Report, side_by_side
from benchmarks.recipe import RECIPES
from benchmarks.stage_two import updates
from icrl.app.compose import load_config
from icrl.extensions.cpu_attention import attention


def main() -> None:
    torch.set_num_threads(1)
    report, usual = Report("extensions.cpu_attention.long_windows"), attention.MOST_QUERIES
    for steps in (400, 800):
        given = f"data.kept_steps=0 model.context_len={steps} trainer.mini_batch_length={steps}".split()
        update = updates(load_config([*RECIPES["default"], *given]), 1)

        def with_most(queries: int, update: Callable[[], int] = update) -> int:
            setattr(attention, "MOST_QUERIES", queries)  # noqa: B010 - a constant for all others
            return update()

        at_once, blocks = f"{steps} steps, all at once", f"{steps} steps, in blocks"
        ways = {at_once: partial(with_most, steps), blocks: partial(with_most, usual)}
        report.show(f"Windows of {steps} steps", side_by_side(ways, 7, time.process_time), "update", at_once)


if __name__ == "__main__":
    main()
