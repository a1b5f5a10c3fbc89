"""Env steps per second of DarkRoom as tensors, in worker processes, and with one process for each environment.

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

NUM_STEPS, SIZES, LARGEST = 5, (20, 200, 5700), 20  # stage one has 5 700 environments by default


def played(env: Env[Any], num_envs: int) -> int:
    """Reset the environments and step them; returns the number of env steps."""
    tasks = env.all_tasks()[torch.arange(num_envs) % len(env.all_tasks())]
    state, _ = env.reset(tasks, stream_seeds(0, num_envs))
    for _ in range(NUM_STEPS):
        state, _ = env.step(state, torch.zeros(num_envs, dtype=torch.long))
    return NUM_STEPS * num_envs


def main() -> None:
    torch.set_num_threads(1)
    config, report = load_config([]).env, Report("processes")
    for num_envs in SIZES:
        with ExitStack() as stack:
            ways = {
                "tensors": make_env(config),
                "a worker for each core": stack.enter_context(closing(ProcessEnv(config))),
            }
            if num_envs <= LARGEST:
                ways["a process for each environment"] = stack.enter_context(closing(ProcessEnv(config, num_envs)))
            calls = {name: partial(played, env, num_envs) for name, env in ways.items()}
            report.show(f"{num_envs} environments", side_by_side(calls, rounds=3), "env step", "tensors")


if __name__ == "__main__":
    main()
