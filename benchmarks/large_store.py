"""Updates per second of stage two from histories four times as large as the memory, beside the same with enough memory.

python -m benchmarks.large_store [MIB]      MIB: the limit of memory, 640 by default

A store of random transitions is written to a temporary folder (TMPDIR), and two processes of one thread train the
default model on all of its steps, in turn. One has memory for all pages of the histories. The other is in a control
group whose limit holds for its page cache too; pages that others have read are dropped before it starts. Needs the
right to make a control group (or systemd-run), and about 16 times MIB of free memory and 6 of disk.
"""

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from benchmarks.measure import Report
from icrl.app.compose import load_config
from icrl.app.root import Config
from icrl.config.schedules import Clock
from icrl.contracts import Json, PipelineError, Rollout
from icrl.data.history_store import HistoryWriter
from icrl.data.windows import open_stores
from icrl.envs import make_env
from icrl.envs.tasks import split_tasks
from icrl.nn.gpt import GPT
from icrl.objectives import objective_class
from icrl.runs.device import prepare
from icrl.runs.distributed import Ranks
from icrl.runs.files import PROJECT
from icrl.spaces import EnvSpec
from icrl.training.program import RunContext
from icrl.training.updates import Updater

TIMES, BLOCK, UPDATES, ROUNDS = 4, 2000, 30, 15
DEFAULT = 640  # MiB
CLOCKS = ("seconds of the clock", "seconds of processor time", "processor time of the thread that trains")
MEMORY, DISK = "in memory", "on disk, a quarter of it in memory"
OPTIONS = ["data.keep_every=1", "data.kept_steps=0", "data.min_final_success=0", "num_threads=1", "device=cpu"]
GROUPS = Path("/sys/fs/cgroup")
LIMITS = ("memory.max", "memory.limit_in_bytes")


def config_of(root: Path, num_steps: int) -> Config:
    life = [f"source.num_env_steps={10 * num_steps}", f"source.history_steps={10 * num_steps}", "source.num_envs=10"]
    return load_config([*OPTIONS, *life, f"root={root}"])


def random_steps(spec: EnvSpec, num_steps: int, num_rows: int) -> Rollout:
    """Transitions `[T, rows]` of episodes of full length, with a reward now and then."""
    shape, step = (num_steps, num_rows), torch.arange(num_steps)[:, None].expand(-1, num_rows)
    obs, action = torch.randint(spec.num_obs, shape), torch.randint(spec.num_actions, shape)
    timestep, never = step % spec.max_episode_steps, torch.zeros(shape, dtype=torch.bool)
    last, reward = timestep == spec.max_episode_steps - 1, (torch.rand(shape) < 0.05).float()
    return Rollout(obs, action, reward, obs.roll(-1, 0), timestep, never, last, action)


def write(root: Path, size: int) -> int:
    """Write a store of about `size` bytes of columns under `root`; returns the length of its rows."""
    config = config_of(root, BLOCK)
    env = make_env(config.env)
    split = split_tasks(env, config)
    rows = {"num_learners": config.source.num_learners, "num_envs": 10}
    num_rows = len(split.train) * rows["num_learners"] * rows["num_envs"]
    num_steps = -(-size // (len(Rollout._fields) * num_rows * BLOCK)) * BLOCK
    config = config_of(root, num_steps)
    tasks: Json = {"all": env.all_tasks().tolist(), "seed": config.tasks.seed, **split._asdict()}
    writer = HistoryWriter(config.folder("histories"), env.spec, num_steps, tasks, rows, config.model_dump())
    steps = random_steps(env.spec, BLOCK, num_rows)
    for _ in range(0, num_steps, BLOCK):
        writer.add(steps)
        writer.commit()
    writer.finish()
    return num_steps


def forget(folder: Path) -> None:
    """Drop the pages of the columns that no process has mapped from the page cache."""
    for path in folder.glob("*.npy"):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def work(root: Path, num_steps: int) -> None:
    """Train as stage two does, `UPDATES` updates for each line of stdin, and print the seconds that they took:
    of the clock, of processor time, and of processor time without the thread that reads from disk."""
    config = config_of(root, num_steps)
    device, ranks, env = prepare(config), Ranks(), make_env(config.env)
    stores = open_stores(config)
    split: Json = stores[0].manifest["tasks"]
    context = RunContext(config, root, device, ranks, {"tasks": split | {"development": []}}, stores)
    batches = context.batches(context.windows(config.objective))
    del stores, context
    model = GPT(config.model, env.spec)
    updater = Updater(
        model.train(), objective_class("ad")(config.objective, env.spec, model.head), config, device, ranks
    )
    update = 0
    print("ready", flush=True)
    for _ in sys.stdin:
        clocks = time.perf_counter, time.process_time, time.thread_time
        start = [clock() for clock in clocks]
        for _ in range(UPDATES):
            updater.update(batches(update), Clock(0.5, update, 0, update))
            update += 1
        print(json.dumps([clock() - then for clock, then in zip(clocks, start, strict=True)]), flush=True)


@contextmanager
def limited(size: int) -> Iterator[tuple[list[str], Path | None]]:
    """Command before that of a process whose memory and page cache are to be limited, and its control group."""
    lines = (line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines())
    own = next((path for _, controllers, path in lines if "memory" in controllers.split(",")), "")
    for parent, limit in zip((GROUPS, GROUPS / "memory" / own.strip("/")), LIMITS, strict=True):  # version 2, version 1
        group = parent / f"icrl-large-store-{os.getpid()}"
        if not os.access(parent / "cgroup.procs", os.W_OK):
            continue
        group.mkdir()
        if not (group / limit).exists():  # another controller has the memory
            group.rmdir()
            continue
        (group / limit).write_text(str(size))
        try:
            yield ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh"], group
        finally:
            for process in (group / "cgroup.procs").read_text().split():
                os.kill(int(process), signal.SIGKILL)
            while (group / "cgroup.procs").read_text():
                time.sleep(0.1)
            group.rmdir()
        return
    if not shutil.which("systemd-run"):
        raise PipelineError("no control group can be made here: run this as root, or where there is systemd-run")
    yield ["systemd-run", "--scope", "--quiet", "-p", f"MemoryMax={size}", "-p", "MemorySwapMax=0"], None


def started(command: list[str], root: Path, num_steps: int, name: str) -> subprocess.Popen[str]:
    program = [*command, sys.executable, "-m", "benchmarks.large_store", "work", str(root), str(num_steps)]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    process = subprocess.Popen(program, cwd=PROJECT, env=os.environ | {"OMP_NUM_THREADS": "1"}, **pipes)
    while (line := process.stdout.readline()) != "ready\n":  # type: ignore[union-attr]
        if not line:
            raise PipelineError(f"the process with the histories {name} ended: its error is above")
        print(f"{name}: {line}", end="")
    return process


def measured(process: subprocess.Popen[str]) -> list[float]:
    """Seconds that one turn of a process takes, by `CLOCKS`."""
    assert process.stdin
    assert process.stdout
    process.stdin.write("\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def read_from_disk(process: subprocess.Popen[str]) -> int:
    lines = Path(f"/proc/{process.pid}/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["read_bytes"])


def main(limit: int) -> None:
    with tempfile.TemporaryDirectory() as folder, limited(limit) as (command, group):
        root = Path(folder)
        num_steps = write(root, TIMES * limit)
        columns = config_of(root, num_steps).folder("histories")
        size = sum(path.stat().st_size for path in columns.glob("*.npy"))
        print(f"store of {size >> 20} MiB in rows of {num_steps} steps; limit of {limit >> 20} MiB")
        processes = {MEMORY: started([], root, num_steps, MEMORY)}
        forget(columns)
        processes[DISK] = started(command, root, num_steps, DISK)
        seconds: dict[str, list[list[float]]] = {name: [] for name in processes}
        for process in processes.values():
            measured(process)  # warm up
        before = read_from_disk(processes[DISK])
        for _ in range(ROUNDS):
            for name, process in processes.items():
                seconds[name].append(measured(process))
        read = (read_from_disk(processes[DISK]) - before) / ROUNDS / UPDATES
        files = ((group or root) / name for name in ("memory.peak", "memory.max_usage_in_bytes"))
        most = [int(path.read_text()) >> 20 for path in files if path.exists()]
        for process in processes.values():
            process.communicate()
        report = Report("large_store", ["size"] if limit != DEFAULT << 20 else None)
        for number, clock in enumerate(CLOCKS):
            taken = {name: [found[number] for found in turns] for name, turns in seconds.items()}
            rates = {name: UPDATES / statistics.median(found) for name, found in taken.items()}
            report.show(f"Stage two, {clock}", rates, "update", MEMORY)
            ratio = statistics.median(one / two for one, two in zip(taken[MEMORY], taken[DISK], strict=True))
            print(f"median of the ratios of the rounds {ratio:.3f}")
        print(
            f"{read / 1e6:.2f} MB read from disk an update",
            *(f"; at most {size} MiB in the control group" for size in most),
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["work"]:
        work(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        main((int(sys.argv[1]) if sys.argv[1:] else DEFAULT) << 20)
