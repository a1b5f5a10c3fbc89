"""Program of every process of `torchrun` in the tests: python parallel.py FOLDER"""

import json
import os
import signal
import sys
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any

import critics
import torch
import torch.distributed as dist
from torch import nn
from toy import CPU, batch_at, config_of, dying, look, model_of, run

from icrl.contracts import Batch, ConfigError, PipelineError, Stopped
from icrl.objectives.ilql import ImplicitQLearning
from icrl.runs.distributed import Ranks, joined
from icrl.training.fit import fit
from icrl.training.program import RunContext


def share(ranks: Ranks, update: int) -> Batch:
    return part_of(batch_at(update), ranks)


def part_of(batch: Batch, ranks: Ranks) -> Batch:
    """This rank's windows: every n-th."""
    return Batch(*(column[ranks.rank :: ranks.size] for column in batch))


def main(folder: Path) -> None:
    torch.manual_seed(0)
    with suppress(Stopped), joined(CPU) as (ranks, _):
        group = weakref.ref(dist.group.WORLD)
        found = {name: case(folder / name, ranks) for name, case in CASES.items()}
        found["rank"], found["size"] = ranks.rank, ranks.size
        if ranks.is_writer:
            raise Stopped
    found["group_is_gone"] = group() is None
    (folder / f"{os.environ['RANK']}.json").write_text(json.dumps(found))


def fitted(folder: Path, ranks: Ranks, model: nn.Module, batches: Any = None, **changes: Any) -> str:
    """Train; returns the message of the error that ended it."""
    changes["trainer"] = {"num_iterations": 6, "parameter_check_interval": 1} | changes.get("trainer", {})
    try:
        run(folder, config_of(**changes), model, batches or (lambda update: share(ranks, update)), ranks=ranks)
    except (ConfigError, PipelineError, Stopped, KeyboardInterrupt) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def equal_to_one_process(folder: Path, ranks: Ranks) -> str:
    options = {"grads_and_vars": True, "gradient_noise_scale": "alternative", "action_distributions": True}
    return fitted(folder, ranks, model_of(0, dropout=0.0), summaries=options)


def with_accumulation(folder: Path, ranks: Ranks) -> str:
    return fitted(folder, ranks, model_of(0, dropout=0.0), trainer={"gradient_accumulation_steps": 2})


def with_dropout(folder: Path, ranks: Ranks) -> str:
    return fitted(folder, ranks, model_of(0))


def resumed(folder: Path, ranks: Ranks) -> list[str]:
    """The first rank alone gets a signal, in update 4; afterwards the other has another seed."""

    def batches(update: int) -> Batch:
        if update == 4 and ranks.is_writer:
            os.kill(os.getpid(), signal.SIGTERM)
        return share(ranks, update)

    return [fitted(folder, ranks, model_of(0), batches), fitted(folder, ranks, model_of(5 + ranks.rank))]


def grown(folder: Path, ranks: Ranks) -> str:
    """A run that the first process began alone."""
    if ranks.is_writer:
        fitted(folder, Ranks(), model_of(0), dying(5))
    ranks.any(False)  # the second waits for it
    return fitted(folder, ranks, model_of(0))


def differing(folder: Path, ranks: Ranks) -> str:
    model = model_of(0)

    def batches(update: int) -> Batch:
        if update == 2 and ranks.rank:
            model[4].bias.data[1] += 0.01
        return share(ranks, update)

    return fitted(folder, ranks, model, batches, trainer={"parameter_check_interval": 4})


def broken_down(folder: Path, ranks: Ranks) -> str:
    """The loss of the second process alone is NaN, in the last update before a checkpoint."""
    model = model_of(0)

    def batches(update: int) -> Batch:
        if update == 5 and ranks.rank:
            model[4].weight.data[0, 0] = torch.nan
        return share(ranks, update)

    options = {"parameter_check_interval": 0, "evaluate": False}
    return fitted(folder, ranks, model, batches, trainer=options, checkpoints={"on_crash": "skip"})


def broken_down_in_half(folder: Path, ranks: Ranks) -> str:
    """With float16 the loss of the second process alone is infinite, once."""
    model = model_of(0)

    def batches(update: int) -> Batch:
        if update == 4 and ranks.rank:
            spoil = model.register_forward_hook(lambda module, inputs, output: spoil.remove() or output * torch.inf)
        return share(ranks, update)

    return fitted(folder, ranks, model, batches, trainer={"evaluate": False}, device={"amp_dtype": "float16"})


def critic(folder: Path, ranks: Ranks) -> str:
    """Q, V on a trunk of its own, and a policy."""
    form = {"separate_value": True, "imitation_scaling": 0.5, "horizon": "across_episodes"}
    return critic_fitted(folder, ranks, form | {"target_update_interval": 2})


def critic_on_fixed_trunk(folder: Path, ranks: Ranks) -> str:
    """Every process draws its own truncations."""
    return critic_fitted(folder, ranks, {"value_trunk_grad": "none", "horizon": "episode"})


def critic_fitted(folder: Path, ranks: Ranks, form: dict[str, Any]) -> str:
    """Train a critic of this form; returns the message of the error that ended it."""
    config = critics.config_of(
        critic=form,
        encoder={"dropout": 0.0},
        decoder={"dropout": 0.0},
        trainer={"num_iterations": 6, "parameter_check_interval": 1},
    )
    torch.manual_seed(0)
    model = critics.fresh_critic(config)
    truncated = [0, 1, 0, 1, 0, 0, 0] * 4

    def batches(update: int) -> Batch:
        return part_of(critics.batch_of(4, seed=update, truncated=truncated), ranks)

    about = {"program": "train_ilql", "run": "f00d"}
    try:
        context = RunContext(config, folder, CPU, ranks, about, [])
        fit(context, model, ImplicitQLearning(model), batches, look, after_step=model.after_update)
    except (ConfigError, PipelineError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def of_all(folder: Path, ranks: Ranks) -> list[Any]:
    own = torch.tensor([1.0, 10.0]) * (ranks.rank + 1)
    gathered = [value.tolist() for value in ranks.gather(own)]
    return [ranks.any(bool(ranks.rank)), ranks.any(False), ranks.average(own).tolist(), gathered, own.tolist()]


CASES = {
    case.__name__: case
    for case in (
        *(equal_to_one_process, with_accumulation, with_dropout, resumed, grown, differing),
        *(broken_down, broken_down_in_half, critic, critic_on_fixed_trunk, of_all),
    )
}

if __name__ == "__main__":
    main(Path(sys.argv[1]))
