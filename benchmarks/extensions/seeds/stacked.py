"""Twelve seeds of stage two as one program, beside the same one after the other: of the tiny and the default recipe.

python -m benchmarks.extensions.seeds.stacked [commands | gpu]

Updates are measured in this process on one thread and its clock, on random windows; the models are also trained as one
by `torch.func.vmap`, which is what our layers are compared with. With `commands`, whole commands of stage two are too,
start, evaluations and checkpoints included. With `gpu` updates are measured on a GPU, by the clock on the wall and
without vmap, and nothing is kept.
"""

import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from typing import Any

import torch
from torch.func import functional_call, stack_module_state

from benchmarks.measure import Report, side_by_side, waiting
from benchmarks.stage_two import CPU, HALFWAY, random_batch
from icrl.app.compose import load_config
from icrl.app.root import Config
from icrl.contracts import Batch
from icrl.envs import make_env
from icrl.extensions.seeds.stack import Stack
from icrl.nn.gpt import GPT
from icrl.objectives import objective_class
from icrl.runs.distributed import Ranks
from icrl.runs.files import PROJECT
from icrl.spaces import EnvSpec
from icrl.training.updates import Updater

NUMBER, ROUNDS = 12, 5
ALONE, OURS, VMAP = "one after the other", "as one program", "as one by torch.func.vmap, without clipping and step"
RECIPES: dict[str, list[str]] = {"tiny": ["experiment=tiny"], "default": []}
OPTIONS = ["experiment=tiny", "num_threads=1", "histories=tiny"]


def updaters_of(config: Config, spec: EnvSpec, device: torch.device = CPU) -> list[Updater]:
    objective = objective_class(config.objective.name)(config.objective, spec)
    models = [GPT(config.model, spec).to(device).train() for _ in range(NUMBER)]
    return [Updater(model, objective, config, device, Ranks()) for model in models]


def one_by_one(updaters: list[Updater], batches: list[Batch]) -> int:
    for updater, batch in zip(updaters, batches, strict=True):
        updater.update(batch, HALFWAY)
    return NUMBER


def at_once(stack: Stack, batches: list[Batch]) -> int:
    stack.update(batches, HALFWAY)
    return NUMBER


def by_vmap(updaters: list[Updater], batches: list[Batch]) -> Callable[[], int]:
    """Forward and backward passes of all models by PyTorch's own transformation."""
    base, first = deepcopy(updaters[0].model), updaters[0]
    parameters, buffers = stack_module_state([updater.model for updater in updaters])

    def loss_of(parameters: Any, buffers: Any, batch: Batch) -> torch.Tensor:
        def model(context: Any) -> torch.Tensor:
            return functional_call(base, (parameters, buffers), (context,))

        loss, *_ = first.loss(model, batch)  # type: ignore[arg-type]
        return loss

    def update() -> int:
        together = Batch(*(torch.stack(columns) for columns in zip(*batches, strict=True)))
        for parameter in parameters.values():
            parameter.grad = None
        torch.vmap(loss_of)(parameters, buffers, together).sum().backward()
        return NUMBER

    return update


def commands() -> dict[str, float]:
    """Updates per second of whole commands."""
    rates = dict[str, float]()
    with tempfile.TemporaryDirectory() as root:
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        run: Any = partial(subprocess.run, cwd=PROJECT, env=environment, check=True, capture_output=True)
        source = [
            sys.executable,
            "-m",
            "src.train_agents",
            "experiment=tiny",
            f"root={root}",
            "source.videos_per_task=0",
        ]
        run([*source, "num_threads=1"])
        updates = NUMBER * load_config(RECIPES["tiny"]).trainer.num_iterations
        start = time.perf_counter()
        together = f"seeds={[*range(NUMBER)]}".replace(" ", "")
        run([sys.executable, "-m", "src.train_seeds", *OPTIONS, f"root={root}", "name=many", together])
        rates[OURS] = updates / (time.perf_counter() - start)
        start = time.perf_counter()
        for seed in range(NUMBER):
            run([sys.executable, "-m", "src.train_gpt", *OPTIONS, f"root={root}", f"name=alone-{seed}", f"seed={seed}"])
        rates[ALONE] = updates / (time.perf_counter() - start)
    return rates


def main(with_commands: bool, device: torch.device) -> None:
    """Measure, and keep what was measured on a CPU."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", UserWarning)  # vmap has no rule for attention on a CPU
    on_cpu = device == CPU
    report = Report("extensions.seeds.stacked", None if on_cpu else ["gpu"])
    for name, options in RECIPES.items():
        config = load_config([*options, "num_threads=1", f"device.type={device.type}"])
        spec = make_env(config.env).spec
        batches = [random_batch(config, spec, device) for _ in range(NUMBER)]
        ways: dict[str, Callable[[], int]] = {
            ALONE: partial(one_by_one, updaters_of(config, spec, device), batches),
            OURS: partial(at_once, Stack(updaters_of(config, spec, device)), batches),
        }
        if on_cpu:
            ways[VMAP] = by_vmap(updaters_of(config, spec), batches)
        done = {way: waiting(work, device) for way, work in ways.items()}
        rates = side_by_side(done, ROUNDS, time.process_time if on_cpu else time.perf_counter)
        report.show(f"Updates of {NUMBER} models of the {name} recipe", rates, "update", ALONE)
    if with_commands:
        report.show(f"Stage two of {NUMBER} seeds of the tiny recipe, whole commands", commands(), "update", ALONE)


if __name__ == "__main__":
    main("commands" in sys.argv[1:], torch.device("cuda" if "gpu" in sys.argv[1:] else "cpu"))
