"""Program of every process of `torchrun` in the tests: python parallel.py FOLDER"""

import json
import os
import signal
import sys
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from installed import DETAILS, NOISE_SCALE
from torch import nn
from toy import CPU, batch_at, config_of, dying, model_of, run

from icrl.contracts import Batch, ConfigError, PipelineError, Stopped
from icrl.runs.distributed import Ranks, process_group

NOISE = {"details": DETAILS, "gradient_noise_scale": NOISE_SCALE}


def main(folder: Path, cases: dict[str, Callable[[Path, Ranks], Any]]) -> None:
    torch.manual_seed(0)
    with suppress(Stopped), process_group().joined(CPU) as (ranks, _):
        group = weakref.ref(dist.group.WORLD)
        found = {name: case(folder / name, ranks) for name, case in cases.items()}
        found["rank"], found["size"] = ranks.rank, ranks.size
        if ranks.is_writer:
            raise Stopped
    found["group_is_gone"] = group() is None
    (folder / f"{os.environ['RANK']}.json").write_text(json.dumps(found))


def part_of(batch: Batch, ranks: Ranks) -> Batch:
    """This rank's windows: every n-th."""
    return Batch(*(column[ranks.rank :: ranks.size] for column in batch))


def message_of(work: Callable[[], object]) -> str:
    """Message of the error that ends `work`."""
    try:
        work()
    except (ConfigError, PipelineError, Stopped, KeyboardInterrupt) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def check_equal(ranks: Ranks, model: nn.Module) -> None:
    """All ranks have the same parameters, but for those that are not finite."""
    first, *others = ranks.gather(torch.cat([one.detach().flatten() for one in model.parameters()]))
    assert all(torch.allclose(first, one, rtol=1e-6, atol=1e-6, equal_nan=True) for one in others)


def fitted(
    folder: Path,
    ranks: Ranks,
    model: nn.Module,
    at: int = -1,
    act: Callable[[], None] = lambda: None,
    rank: int = 1,
    **changes: Any,
) -> str:
    """Train; this `rank` acts before the batch of update `at`. Returns the message of the error that ended it."""

    def batches(update: int) -> Batch:
        check_equal(ranks, model)
        if update == at and ranks.rank == rank:
            act()
        return part_of(batch_at(update), ranks)

    changes["trainer"] = {"num_iterations": 6} | changes.get("trainer", {})
    return message_of(lambda: run(folder, config_of(**changes), model, batches, ranks=ranks))


def resumed(folder: Path, ranks: Ranks) -> list[str]:
    """The first rank alone gets a signal, in update 4; afterwards the other has another seed."""
    stopped = fitted(folder, ranks, model_of(0), 4, lambda: signal.raise_signal(signal.SIGTERM), rank=0)
    return [stopped, fitted(folder, ranks, model_of(5 + ranks.rank))]


def grown(folder: Path, ranks: Ranks) -> str:
    """A run that the first process began alone."""
    if ranks.is_writer:
        config = config_of(trainer={"num_iterations": 6})
        message_of(lambda: run(folder, config, model_of(0), dying(5)))
    ranks.any(False)  # the second waits for it
    return fitted(folder, ranks, model_of(0))


def broken_down(folder: Path, ranks: Ranks) -> str:
    """The loss of the second process alone is NaN, in the last update before a checkpoint."""
    model = model_of(0)
    changes = {"trainer": {"evaluate": False}}
    return fitted(folder, ranks, model, 5, lambda: model[4].weight.data[0, 0].fill_(torch.nan), **changes)


def broken_down_in_half(folder: Path, ranks: Ranks) -> str:
    """With float16 the loss of the second process alone is infinite, once."""
    model = model_of(0)

    def spoil() -> None:
        hook = model.register_forward_hook(lambda module, inputs, output: hook.remove() or output * torch.inf)

    return fitted(folder, ranks, model, 4, spoil, trainer={"evaluate": False}, device={"amp_dtype": "float16"})


CASES: dict[str, Callable[[Path, Ranks], Any]] = {
    "equal_to_one_process": lambda folder, ranks: fitted(folder, ranks, model_of(0, dropout=0.0), summaries=NOISE),
    "with_accumulation": lambda folder, ranks: fitted(
        folder, ranks, model_of(0, dropout=0.0), trainer={"gradient_accumulation_steps": 2}
    ),
    "with_dropout": lambda folder, ranks: fitted(folder, ranks, model_of(0)),
} | {case.__name__: case for case in (resumed, grown, broken_down, broken_down_in_half)}

if __name__ == "__main__":
    main(Path(sys.argv[1]), CASES)
