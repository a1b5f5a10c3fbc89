"""Env steps per second of DarkRoom as tensors, and of Gymnasium's worlds one environment after the other, beside worker
processes and one process for each environment: by the clock, and by processor time, as on free cores (Linux). Worlds
whose package is not installed are left out.

python -m benchmarks.processes
"""

import os
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from importlib.util import find_spec
from pathlib import Path

import torch

from benchmarks.measure import Report, side_by_side
from icrl.app.compose import load_config
from icrl.envs import make_env
from icrl.envs.core import TensorEnv
from icrl.envs.gym.workers import ProcessEnv
from icrl.randomness import stream_seeds

NUM_STEPS, ROUNDS, LARGEST = 20, 3, 8
SIZES = {  # numbers of environments by preset; in DarkRoom stage one has 5 700 by default
    "dark_room": (20, 200, 5700),
    "gymnasium_cart_pole": (8, 40, 160),
    "minigrid_go_to_door": (8, 40, 160),
    "half_cheetah_vel": (8, 40),
}
PACKAGES = {"minigrid_go_to_door": "minigrid", "half_cheetah_vel": "mujoco"}


def plays(env: TensorEnv | ProcessEnv, num_envs: int) -> Callable[[], int]:
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


def on_free_cores(work: Callable[[], int], env: TensorEnv | ProcessEnv) -> float:
    """Env steps per second of processor time of this process and of its busiest worker, which wait for each other."""
    workers = [process.pid for process in env.processes] if isinstance(env, ProcessEnv) else []
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
    report = Report("processes")
    found = {world: sizes for world, sizes in SIZES.items() if find_spec(PACKAGES.get(world, "gymnasium"))}
    for world, num_envs in ((world, size) for world, sizes in found.items() for size in sizes):
        config = load_config([f"env={world}"]).env
        with ExitStack() as stack:
            ways: dict[str, TensorEnv | ProcessEnv] = {
                "this process": stack.enter_context(closing(make_env(config))),
                "a worker for each core": stack.enter_context(closing(ProcessEnv(config))),
            }
            if num_envs <= LARGEST:
                ways["a process for each environment"] = stack.enter_context(closing(ProcessEnv(config, num_envs)))
            calls = {name: plays(env, num_envs) for name, env in ways.items()}
            title = f"{world}, {num_envs} environments"
            report.show(title, side_by_side(calls, ROUNDS), "env step", "this process")
            rates = {name: on_free_cores(call, ways[name]) for name, call in calls.items()}
            report.show(f"{title}, per second of processor time", rates, "env step", "this process")


if __name__ == "__main__":
    main()
