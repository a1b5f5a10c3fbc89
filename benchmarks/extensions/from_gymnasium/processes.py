"""Env steps per second of Gymnasium's worlds one environment after the other, beside a worker process for each core: by
the clock, and by processor time, as on free cores (Linux). Worlds whose package is not installed are left out.

python -m benchmarks.extensions.from_gymnasium.processes
"""

import os
import time
from collections.abc import Callable
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

import torch

from benchmarks.measure import Report, side_by_side
from icrl.app.compose import load_config
from icrl.envs import make_env
from icrl.envs.core import TensorEnv
from icrl.extensions.from_gymnasium.workers import WorkerStreams
from icrl.randomness import stream_seeds

NUM_STEPS, ROUNDS = 20, 3
SIZES = {  # numbers of environments by preset
    "gymnasium_cart_pole": (8, 40, 160),
    "minigrid_go_to_door": (8, 40, 160),
    "half_cheetah_vel": (8, 40),
}
PACKAGES = {"minigrid_go_to_door": "minigrid", "half_cheetah_vel": "mujoco"}


def plays(env: TensorEnv, num_envs: int) -> Callable[[], int]:
    """Steps of environments that were reset before, and are again at the end of an episode; a call returns their
    number."""
    tasks = env.all_tasks()[torch.arange(num_envs) % len(env.all_tasks())]
    state, _ = env.reset(tasks, stream_seeds(0, num_envs))
    action = torch.zeros(num_envs, *env.spec.action_shape, dtype=env.spec.action_dtype)

    def steps() -> int:
        nonlocal state
        for _ in range(NUM_STEPS):
            state, _ = env.step(state, action)
        return NUM_STEPS * num_envs

    return steps


def on_free_cores(work: Callable[[], int], env: TensorEnv) -> float:
    """Env steps per second of processor time of this process and of its busiest worker, which wait for each other."""
    streams = vars(env)["_streams"]
    workers = [process.pid for process in streams.processes] if isinstance(streams, WorkerStreams) else []
    start, before = time.process_time(), [_seconds(worker) for worker in workers]
    units = sum(work() for _ in range(ROUNDS))
    busiest = max((_seconds(worker) - then for worker, then in zip(workers, before, strict=True)), default=0.0)
    return units / (time.process_time() - start + busiest)


def _seconds(process: int | None) -> float:
    """Processor time of another process."""
    user, system = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    torch.set_num_threads(1)
    report = Report("extensions.from_gymnasium.processes")
    found = {world: sizes for world, sizes in SIZES.items() if find_spec(PACKAGES.get(world, "gymnasium"))}
    for world, num_envs in ((world, size) for world, sizes in found.items() for size in sizes):
        config = load_config([f"env={world}", f"env.num_workers={len(os.sched_getaffinity(0))}"]).env
        with closing(make_env(config)) as env, closing(env.in_workers()) as in_workers:
            ways = {"this process": env, "a worker for each core": in_workers}
            calls = {name: plays(env, num_envs) for name, env in ways.items()}
            title = f"{world}, {num_envs} environments"
            report.show(title, side_by_side(calls, ROUNDS), "env step", "this process")
            rates = {name: on_free_cores(call, ways[name]) for name, call in calls.items()}
            report.show(f"{title}, per second of processor time", rates, "env step", "this process")


if __name__ == "__main__":
    main()
