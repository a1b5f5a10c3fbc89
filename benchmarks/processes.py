"""Env steps per second of DarkRoom as tensors, and of Gymnasium's worlds one environment after the other, beside worker
processes and one process for each environment.

python -m benchmarks.processes
"""

from contextlib import ExitStack, closing
from functools import partial
from typing import Any

import torch

from benchmarks.measure import Report, side_by_side
from icrl.config.compose import load_config
from icrl.contracts import Env
from icrl.envs import make_env
from icrl.envs.gym.workers import ProcessEnv
from icrl.randomness import stream_seeds

NUM_STEPS, LARGEST = 5, 20
SIZES = {  # numbers of environments by preset; in DarkRoom stage one has 5 700 by default
    "dark_room": (20, 200, 5700),
    "gymnasium_cart_pole": (20, 200),
    "gymnasium_pendulum": (20, 200),
}


def played(env: Env[Any], num_envs: int) -> int:
    """Reset the environments and step them; returns the number of env steps."""
    tasks = env.all_tasks()[torch.arange(num_envs) % len(env.all_tasks())]
    state, _ = env.reset(tasks, stream_seeds(0, num_envs))
    for _ in range(NUM_STEPS):
        state, _ = env.step(state, torch.zeros(num_envs, *env.spec.action_shape, dtype=env.spec.action_dtype))
    return NUM_STEPS * num_envs


def main() -> None:
    torch.set_num_threads(1)
    report = Report("processes")
    for world, num_envs in ((world, size) for world, sizes in SIZES.items() for size in sizes):
        config = load_config([f"env={world}"]).env
        with ExitStack() as stack:
            ways = {
                "this process": stack.enter_context(closing(make_env(config))),
                "a worker for each core": stack.enter_context(closing(ProcessEnv(config))),
            }
            if num_envs <= LARGEST:
                ways["a process for each environment"] = stack.enter_context(closing(ProcessEnv(config, num_envs)))
            calls = {name: partial(played, env, num_envs) for name, env in ways.items()}
            report.show(f"{world}, {num_envs} environments", side_by_side(calls, rounds=3), "env step", "this process")


if __name__ == "__main__":
    main()
