"""Curves of cost: processor time and memory over tasks, streams, context, width and size of the store.

    python -m benchmarks.costs

Each point is measured in a process of its own on one thread: the fastest of three rounds after one to warm up, and what
the memory of the process grew by at most, pages of files on disk included. The exponent of a curve is its slope in
logarithms over the last two points, where fixed costs matter least; beside it stands the exponent that the algorithm
has. Picture: results/costs.png.
"""

import json
import math
import os
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, NoReturn

import torch

from benchmarks.large_store import config_of, write
from benchmarks.measure import RESULTS, Report
from benchmarks.stage_one import ours
from benchmarks.stage_two import updates
from icrl.app.compose import load_config
from icrl.contracts import PipelineError
from icrl.data.windows import open_stores
from icrl.envs import make_env
from icrl.evaluation.in_context import play_steps
from icrl.nn.gpt import GPT
from icrl.nn.gpt_policy import GPTPolicy
from icrl.plots.style import BASELINE, PALETTE, new_panels, save_figure, tidy
from icrl.runs.distributed import Ranks
from icrl.training.program import RunContext

ROUNDS, STEPS = 3, 40
Work = Callable[[], object]


class Curve(NamedTuple):
    """Cost of one unit of work over a size."""

    what: str
    size: str
    points: tuple[int, ...]
    expected: tuple[float, float]  # exponents of time and memory
    prepare: Callable[[int], Work]


class Cost(NamedTuple):
    seconds: float
    mebibytes: float


def train_agents(num_tasks: int) -> Work:
    """An iteration of A2C, with one agent a task."""
    tasks = [f"env.num_tasks={num_tasks + 100}", f"tasks.num_train={num_tasks}", "tasks.num_held_out=100"]
    return ours(
        ["env=bandit", *tasks, "data.num_development_tasks=2", "source.num_learners=1", "source.history_steps=1000"],
        times=1,
    )


def act(num_streams: int) -> Work:
    """Steps of the default model in DarkRoom."""
    config = load_config([])
    env = make_env(config.env)
    policy = GPTPolicy(GPT(config.model, env.spec), 1.0, 1.0, config.policy.context_kept)
    return lambda: play_steps(policy, env, env.all_tasks()[:1], num_streams, STEPS, 0)


def learn_windows(length: int) -> Work:
    """An update on one window of this length."""
    sizes = [f"model.context_len={length}", f"trainer.mini_batch_length={length}", "trainer.mini_batch_size=1"]
    sizes += ["data.kept_steps=0", "source.num_env_steps=100000", "source.history_steps=100000"]  # long enough
    return updates(load_config([*sizes, "device.amp_dtype=none"]), 1)


def learn_wide(width: int) -> Work:
    """An update of a model of this width."""
    return updates(load_config([f"model.embed_dim={width}", f"model.ff_dim={4 * width}", "device.amp_dtype=none"]), 1)


def read(mebibytes: int) -> Work:
    """Open a store of this size and read 20 batches of windows."""
    folder = Path(tempfile.mkdtemp())
    num_steps = write(folder, mebibytes * 2**20)

    def work() -> None:
        config = config_of(folder, num_steps)
        stores = open_stores(config)
        split = stores[0].manifest["tasks"] | {"development": []}
        context = RunContext(config, folder, torch.device("cpu"), Ranks(), {"tasks": split}, stores)
        batches = context.batches(context.windows(config.objective))
        for update in range(20):
            batches(update)

    return work


CURVES = (
    Curve("iteration of A2C", "tasks", (10, 100, 1000, 10_000), (1, 1), train_agents),
    Curve(f"{STEPS} steps in context", "streams", (10, 100, 1000, 10_000), (1, 1), act),
    Curve("update on one window", "steps of context", (64, 256, 1024, 4096), (2, 1), learn_windows),
    Curve("update", "width", (32, 64, 128, 256, 512), (2, 1), learn_wide),
    Curve("opening and 20 batches", "MiB of histories", (100, 400, 1600), (1, 0), read),
)


def measured(curve: Curve, size: int) -> Cost:
    """Cost of one point, in a process of its own. Raises `PipelineError` if that fails."""
    reading, writing = os.pipe()
    process = os.fork()
    if not process:
        _answer(curve, size, writing)
    os.close(writing)
    with os.fdopen(reading) as answers:
        answer = answers.read()
    if os.waitpid(process, 0)[1]:
        raise PipelineError(f"{curve.what}, {size} {curve.size}: the measurement failed")
    return Cost(*json.loads(answer))


def _answer(curve: Curve, size: int, writing: int) -> NoReturn:
    """Write the cost and end the process."""
    status = 1
    try:
        cost = cost_of(curve.prepare(size))
        with os.fdopen(writing, "w") as answers:
            answers.write(json.dumps(cost))
        status = 0
    except BaseException:  # whatever it was, this process must not go on as the parent
        traceback.print_exc()
    os._exit(status)


def cost_of(work: Work) -> Cost:
    Path("/proc/self/clear_refs").write_text("5")  # forget the largest memory so far
    before = memory("VmRSS")
    work()
    rounds = list[float]()
    for _ in range(ROUNDS):
        start = time.process_time()
        work()
        rounds.append(time.process_time() - start)
    return Cost(min(rounds), memory("VmHWM") - before)


def memory(field: str) -> float:
    """A field of the status of this process, in MiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


def exponent(sizes: tuple[int, ...], values: list[float]) -> float:
    """Slope of the logarithms between the last two points."""
    return math.log(max(values[-1], 1e-9) / max(values[-2], 1e-9)) / math.log(sizes[-1] / sizes[-2])


def main() -> None:
    torch.set_num_threads(1)
    report, found = Report("costs"), dict[Curve, list[Cost]]()
    with tempfile.TemporaryDirectory() as folder:
        tempfile.tempdir = folder  # processes that measure leave their stores there
        for curve in CURVES:
            found[curve] = [measured(curve, size) for size in curve.points]
    tempfile.tempdir = None
    for curve, costs in found.items():
        columns = [[*column] for column in zip(*costs, strict=True)]
        time_, space = (
            f"{name} grows with exponent {exponent(curve.points, values):.2f} (algorithm: {expected:g})"
            for name, values, expected in zip(("time", "memory"), columns, curve.expected, strict=True)
        )
        used = ", ".join(f"{cost.mebibytes:.0f}" for cost in costs)
        title = f"{curve.what.capitalize()} over {curve.size}; {time_}; {space}; MiB: {used}"
        rates = {f"{size} {curve.size}": 1 / cost.seconds for size, cost in zip(curve.points, costs, strict=True)}
        report.show(title, rates, "time", next(iter(rates)))
    figure, panels = new_panels("Time and memory", 2, len(CURVES), size=(15.0, 6.0))
    for column, (curve, costs) in enumerate(found.items()):
        for row, (values, unit) in enumerate(zip(zip(*costs, strict=True), ("seconds", "MiB"), strict=True)):
            axes = panels[row * len(CURVES) + column]
            shown = [max(value, 1e-3) for value in values]
            slope = [shown[-1] * (size / curve.points[-1]) ** curve.expected[row] for size in curve.points]
            axes.loglog(curve.points, slope, label="slope of the algorithm", **BASELINE)
            axes.loglog(curve.points, shown, "o-", color=PALETTE[0], label="measured")
            tidy(axes, curve.size, unit)
            axes.set_xticks(curve.points, [f"{size:,}" for size in curve.points], fontsize=9)
            axes.minorticks_off()
            axes.set_title(curve.what if row == 0 else "", fontsize=13)
    panels[0].legend(frameon=False)
    save_figure(RESULTS / "costs.png", figure)


if __name__ == "__main__":
    main()
