"""Everything that one wants to know of a machine with a GPU, in about ten minutes: `make gpu`.

    python -m benchmarks.gpu [--tiny | --short]

First rates of updates, generation and stage one on the GPU and, in turn, on one core, beside GPT-2 where Transformers
is installed. Then the tests of `tests/test_gpu.py`: results of the GPU are those of the CPU, and the same in every run.
Then `make run`, updates of twelve seeds as one program and, unless `--short` is given, `experiment=reference`. A
command that exceeds its time is ended and the report says so; it may be continued by hand, because runs resume. Writes
`docs/speed_gpu.md` and `results/gpu.json`.

Without a GPU, `--tiny` does the same on the CPU in the smallest sizes, and keeps nothing.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.measure import Report, side_by_side, waiting
from benchmarks.page import section
from benchmarks.stage_one import ours
from benchmarks.stage_two import CPU, HALFWAY, our_update, random_batch, repeated
from icrl.app.compose import load_config
from icrl.app.root import Config
from icrl.contracts import Json
from icrl.envs import make_env
from icrl.envs.rollout import rollout, start_streams
from icrl.nn.gpt import GPT
from icrl.nn.gpt_policy import GPTPolicy
from icrl.randomness import Noise
from icrl.runs.device import REPEATED
from icrl.runs.files import PROJECT, read_json, write_json

PAGE = PROJECT / "docs" / "speed_gpu.md"
RECIPES: dict[str, list[str]] = {"default": [], "reference": ["experiment=reference", "model.attention_dropout=0.0"]}
PRECISIONS = ("none", "bfloat16")
SMALL = (
    *("source.num_learners=1", "source.num_env_steps=200", "source.history_steps=200", "data.num_development_tasks=1"),
    *("data.min_final_success=0", "data.kept_steps=0", "data.history_len=100", "model.context_len=8"),
    *("model.embed_dim=8", "model.num_layers=1", "model.num_heads=2", "model.ff_dim=16", "trainer.num_iterations=2"),
    *("trainer.mini_batch_size=4", "finetune.num_iterations=1", "finetune.num_streams=2", "finetune.trial_steps=8"),
    *("evals.num_evals=1", "evals.num_eval_episodes=4", "evals.num_eval_environments=2", "evals.async_eval=false"),
    *("evaluation.num_episodes=2", "evaluation.num_streams=1"),
    *("evaluation.num_probe_streams=1", "evaluation.num_bootstrap=100", "evaluation.videos=false"),
    *("source.videos_per_task=0", "checkpoints.num_checkpoints=1", "summaries.num_summaries=1", "tasks.num_train=4"),
    *("env.size=3", "env.max_episode_steps=4", "num_threads=1", "finetune.num_rooms=0", "source.unroll_length=5"),
)
SHOWN = 25  # last lines of a command in the report
BASELINE = "one core"


def commands(root: str, tiny: bool, short: bool) -> dict[str, tuple[list[str], float]]:
    """Commands by title, each with the seconds that it may take."""
    small = SMALL if tiny else ()
    tests = ["pytest", "-q", "tests/test_gpu.py", *(["-k", "fused"] if tiny else [])]
    reference = ["src.pipeline", "experiment=reference", "policy.model=gpt", f"root={root}", *small]
    found = {
        "Tests: results of the GPU and of the CPU": (tests, 120.0),
        "make run": (["src.pipeline", f"root={root}", *small], 200.0),
    }
    if not tiny and find_spec("icrl.extensions.seeds"):
        found["Twelve seeds as one program"] = ["benchmarks.extensions.seeds.stacked", "gpu"], 60.0
    if not short:
        found["experiment=reference"] = [*reference, "source.videos_per_task=0"], 300.0
    return found


def result_of(arguments: list[str], seconds: float) -> Json:
    """Run a Python module; how it ended, its time and the last lines that it printed."""
    start = time.perf_counter()
    with tempfile.TemporaryFile("w+") as output:
        try:
            command = [sys.executable, "-m", *arguments]
            given: dict[str, Any] = {"cwd": PROJECT, "stdout": output, "stderr": subprocess.STDOUT, "timeout": seconds}
            given["env"] = os.environ | ({"OMP_NUM_THREADS": "1"} if "pytest" in command else {})
            ended = f"exit status {subprocess.run(command, check=False, **given).returncode}"
        except subprocess.TimeoutExpired:
            ended = f"ended after {seconds:.0f} s, unfinished"
        output.seek(0)
        lines = [line.rpartition("\r")[2].rstrip() for line in output.read().splitlines()]
    shown = [part for part in arguments if not part.startswith("root=")]
    found = {"command": f"python -m {' '.join(shown)}", "ended": ended, "seconds": time.perf_counter() - start}
    return found | {"output": [line for line in lines if line][-SHOWN:]}


def update_rates(report: Report, devices: dict[str, torch.device], tiny: bool) -> None:
    """Updates of each recipe by device and precision, and of GPT-2 if it is installed."""
    for recipe, options in RECIPES.items():
        ways = dict[str, Callable[[], int]]()
        for (place, device), precision in product(devices.items(), PRECISIONS):
            config = load_config([*options, f"device.amp_dtype={precision}", *(SMALL if tiny else ())])
            spec = make_env(config.env).spec
            batch = random_batch(config, spec, device)
            times = 1 if device.type == "cpu" else 20
            updates = {"ours": our_update(config, spec, batch)}
            if find_spec("transformers"):
                peer = import_module("benchmarks.gpt2").gpt2_update
                how = {"bfloat16": precision == "bfloat16", "muon": config.optimizer.name == "muon"}
                updates["GPT-2"] = peer(config, spec, "sdpa", batch, HALFWAY, **how)
            for who, update in updates.items():
                ways[f"{who}, {place}, {precision}"] = waiting(partial(repeated, update, times), device)
        report.show(f"Update, {recipe} recipe", side_by_side(ways, 3), "update", f"ours, {BASELINE}, none")


def generation(config: Config, device: torch.device, streams: int, as_graph: bool) -> Callable[[], int]:
    """Work that plays one context of the default model in its world, on a GPU as one graph or step by step; a call
    returns the number of env steps."""
    env = make_env(config.env, device)
    model = GPT(config.model, env.spec).to(device)

    def play(tasks: Tensor) -> list[Tensor]:
        policy = GPTPolicy(model, 1.0, config.policy.temperature, config.policy.context_kept)
        seeds = torch.arange(len(tasks), device=device)
        start = start_streams(policy, env, tasks, seeds)
        return [*rollout(policy, env, start, config.model.context_len, Noise(seeds))[0]]

    tasks, way = (
        env.all_tasks()[:10].to(device).repeat_interleave(streams, dim=0),
        REPEATED[-1](play) if as_graph else play,
    )

    def steps() -> int:
        return way(tasks)[0].numel()

    return steps


def play_rates(report: Report, devices: dict[str, torch.device], tiny: bool) -> None:
    """Steps of generation and of stage one by device and number of streams."""
    config = load_config(list(SMALL if tiny else ()))
    sizes = (1,) if tiny else (10, 100, 1000)
    ways = dict[str, Callable[[], int]]()
    for (place, device), size, as_graph in product(devices.items(), sizes, (False, True)):
        if place != BASELINE or (size < 1000 and not as_graph):
            name = f"{place}, {10 * size} streams{', as one graph' if as_graph else ''}"
            ways[name] = waiting(generation(config, device, size, as_graph), device)
    for work in ways.values():
        work()  # the next call captures
    report.show(
        "Generation, default model", side_by_side(ways, 2), "env step", next(name for name in ways if BASELINE in name)
    )
    small, times = list(SMALL if tiny else ()), 2 if tiny else 50
    ways = {place: waiting(ours(small, device, times), device) for place, device in devices.items()}
    report.show("Stage one, default", side_by_side(ways, 2), "env step", BASELINE)


def about_gpu(device: torch.device) -> str:
    """Name, memory and versions, in a line."""
    if device.type == "cpu":
        return f"no GPU, PyTorch {torch.__version__}"
    properties = torch.cuda.get_device_properties(device)
    memory = properties.total_memory / 2**30
    return f"{properties.name}, {memory:.0f} GiB, CUDA {torch.version.cuda}, PyTorch {torch.__version__}"


def page(found: Json) -> str:
    """Text of `docs/speed_gpu.md`."""
    parts = ["# On a GPU", f"`make gpu` writes this page. Measured on {found['gpu']}."]
    for title, run in found["runs"].items():
        head = f"`{run['command']}`: {run['seconds']:.0f} s, {run['ended']}."
        parts += [f"## {title}", head, "\n".join(["```text", *run["output"], "```"])]
    return "\n\n".join([*parts, section(found)]) + "\n"


def main(tiny: bool, short: bool = False) -> None:
    if not torch.cuda.is_available() and not tiny:
        sys.exit("error: no GPU is available here; `--tiny` does the same on the CPU in the smallest sizes")
    gpu = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    devices = {"GPU": gpu, BASELINE: CPU}
    with tempfile.TemporaryDirectory() as folder:
        torch.set_num_threads(1)
        report = Report("gpu", folder=Path(folder))
        update_rates(report, devices, tiny)
        play_rates(report, devices, tiny)
        runs = dict[str, Json]()
        found = read_json(Path(folder) / "gpu.json") | {"gpu": about_gpu(gpu), "runs": runs}
        for title, (arguments, seconds) in commands(folder if tiny else str(PROJECT), tiny, short).items():
            runs[title] = result_of(arguments, seconds)
            print(f"{title}: {runs[title]['seconds']:.0f} s, {runs[title]['ended']}", flush=True)
            if not tiny:  # after each, so that nothing is lost if the machine is
                PAGE.write_text(page(found), encoding="utf-8")
                write_json(PROJECT / "benchmarks/results/gpu.json", found)
    print(page(found))


if __name__ == "__main__":
    main("--tiny" in sys.argv[1:], "--short" in sys.argv[1:])
