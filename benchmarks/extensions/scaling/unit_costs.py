"""Unit costs of a large run, measured on one core of this machine, for the simulation of `thousand_gpus`.

python -m benchmarks.extensions.scaling.unit_costs [PART ...]      -> results/scale/unit_costs.json

Parts: engine, checkpoint, stage_one, histories. Without one all are measured; the file keeps those that are not.

Seconds are those of processor time, so that other work on the machine counts little. Needs Dask (pip install .[dask]).
"""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from benchmarks.large_store import random_steps
from benchmarks.measure import RESULTS, about
from benchmarks.stage_one import CPU, unrolls
from icrl.app.compose import load_config
from icrl.app.root import Config
from icrl.contracts import Json
from icrl.data.columns import bytes_of
from icrl.data.history_store import HistoryWriter, open_histories
from icrl.data.windows import Mixture, Windows
from icrl.envs import make_env
from icrl.envs.tasks import split_tasks
from icrl.extensions.scaling.launch import run_jobs
from icrl.extensions.scaling.options import DaskLaunch
from icrl.extensions.scaling.unions import unite
from icrl.extensions.scaling.units import Job, environment
from icrl.nn.gpt import GPT
from icrl.runs.checkpoint import save
from icrl.runs.files import Identity, read_json, sha256, write_json
from icrl.training.optimizers import make_optimizer

COSTS = RESULTS / "scale" / "unit_costs.json"
OWNER = Identity("train_agents", "0")
ROUNDS, STEPS, BATCH, TASKS = 3, 2000, 64, 200
PLAIN = ["data.keep_every=[1]", "data.kept_steps=0", "data.min_final_success=0", "objective.weighting=none"]


def seconds_of(work: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Median of the processor time of a call, after one to warm up."""
    found = list[float]()
    for _ in range(rounds + 1):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return statistics.median(found[1:])


def write_shards(root: Path, number: int, size: int) -> tuple[Config, float]:
    """Write a union of `number` shards of all rooms of this `size`, 2000 steps a row; returns its configuration, and
    the seconds of writing a transition."""
    config = load_config([*PLAIN, f"root={root}", f"env.size={size}", "model.max_size=64", "num_threads=1"])
    env = make_env(config.env)
    split = split_tasks(env, config)
    tasks: Json = {"all": env.all_tasks().tolist(), "seed": 0, **split._asdict()}
    folder, rows = config.folder("histories"), {"num_learners": 1, "num_envs": 1}
    shards, seconds, transitions = list[Path](), 0.0, 0
    for index in range(number):
        train = split.train[len(split.train) * index // number : len(split.train) * (index + 1) // number]
        steps = random_steps(env.spec, STEPS, len(train))
        about_run = config.model_dump()
        shards.append(folder / f"shard-{index}-of-{number}")
        start = time.process_time()
        writer = HistoryWriter(shards[-1], env.spec, STEPS, tasks | {"train": train}, rows, about_run)
        writer.add(steps)
        writer.commit()
        writer.finish()
        seconds, transitions = seconds + time.process_time() - start, transitions + STEPS * len(train)
    unite(folder, shards, split.train, OWNER)
    return config, seconds / transitions


def of_histories() -> Json:
    """Costs of a store: bytes, files, writing, checking, opening and reading."""
    opened: dict[tuple[int, int], float] = {}
    with tempfile.TemporaryDirectory() as name:
        for number, size in ((8, 9), (32, 9), (32, 64)):
            config, writing = write_shards(Path(name) / f"{number}-{size}", number, size)
            folder = config.folder("histories")
            files = [path for path in folder.glob("shard-*/*") if path.suffix == ".npy"]
            total = sum(path.stat().st_size for path in files)
            checking = seconds_of(lambda files=files: [sha256(path) for path in files])
            opened[number, size] = seconds_of(lambda folder=folder: open_histories(folder)) - checking
        store = open_histories(folder)
        num_tasks = {size: size**2 for size in (9, 64)}
        of_tasks = (opened[32, 64] - opened[32, 9]) / 32 / (num_tasks[64] - num_tasks[9])
        of_shard = (opened[32, 9] - opened[8, 9]) / 24 - of_tasks * num_tasks[9]
        tasks = store.manifest["tasks"]["train"]
        windows = Windows(store, config.data, config.objective, tasks, config.model.context_len, CPU)
        mixture, updates = Mixture([windows], []), iter(range(10**9))
        reading = seconds_of(lambda: [mixture.batch(0, next(updates), BATCH) for _ in range(20)]) / 20 / BATCH
    return {
        "bytes_per_transition": bytes_of(store.columns.values(), STEPS) / STEPS,
        "columns": len(files) // 32,
        "seconds_per_transition_written": writing,
        "seconds_per_byte_checked": checking / total,
        "seconds_per_shard_opened": of_shard,
        "seconds_per_shard_and_task_opened": of_tasks,
        "seconds_per_window_read": reading,
        "steps_in_window": config.model.context_len,
    }


def of_stage_one() -> Json:
    """Env steps a second of a core, updates of the learners included."""
    return {name: env_steps(options) for name, options in WORLDS.items()}


def env_steps(options: list[str]) -> float:
    loop, played = unrolls(load_config([*options, "num_threads=1"]), CPU), list[int]()
    seconds = seconds_of(lambda: played.append(next(loop).reward.numel()), 3)
    return played[-1] / seconds


WORLDS = {"dark_room": list[str](), "cart_pole": ["env=cart_pole", "source=ppo_vectors"]}


def of_checkpoint() -> Json:
    """Bytes and seconds of a checkpoint for each parameter, with the state of AdamW."""
    config = load_config(["model.embed_dim=256", "model.num_layers=4", "model.ff_dim=1024"])
    model = GPT(config.model, make_env(config.env).spec)
    optimizer = make_optimizer(model, load_config(["optimizer=adamw"]).optimizer)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    number = sum(parameter.numel() for parameter in model.parameters())
    with tempfile.TemporaryDirectory() as name:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        seconds = seconds_of(lambda: save(Path(name), "last", 1, state, {}, 1))
        size = (Path(name) / "last-000000001.pt").stat().st_size
    return {"bytes_per_parameter": size / number, "seconds_per_parameter": seconds / number}


def of_engine() -> Json:
    """Seconds of the launching process for a unit that does nothing, its scheduler included, and of a unit's start."""
    with tempfile.TemporaryDirectory() as name, quiet():
        jobs = [Job(f"nothing-{number}", [["nothing"]], "", 1) for number in range(TASKS)]
        start = time.process_time()
        failed = run_jobs(jobs, DaskLaunch(), Path(name), "nothing", ("true",))
        seconds = (time.process_time() - start) / TASKS
    assert not failed, failed
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-c", "import icrl.programs.train_agents"]
    for _ in range(ROUNDS):
        subprocess.run(command, env=environment(), check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    start_up = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / ROUNDS
    return {"seconds_per_unit": seconds, "seconds_of_start": start_up}


@contextmanager
def quiet() -> Iterator[None]:
    """Context without the lines of each unit, and of its progress."""
    sys.stdout.flush()
    kept = {number: os.dup(number) for number in (1, 2)}
    with open(os.devnull, "w") as nowhere:
        for number in kept:
            os.dup2(nowhere.fileno(), number)
        try:
            yield
        finally:
            sys.stdout.flush()
            for number, copy in kept.items():
                os.dup2(copy, number)


PARTS: dict[str, Callable[[], Json]] = {
    "engine": of_engine,
    "checkpoint": of_checkpoint,
    "stage_one": of_stage_one,
    "histories": of_histories,
}


def main(parts: list[str]) -> None:
    torch.set_num_threads(1)
    COSTS.parent.mkdir(exist_ok=True)
    kept: Json = read_json(COSTS) if COSTS.exists() else {}
    for name in parts or PARTS:
        kept[name] = {"about": about(), "costs": PARTS[name]()}
        write_json(COSTS, kept)
        print(name, kept[name]["costs"], flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
