"""Comparison of all sources on DarkRoom: tasks solved, env steps to solve them, and env steps per second.

    python -m benchmarks.sources [SOURCE ...] [KEY=VALUE ...]

Default presets with 4 learners for each of 57 tasks, one thread (A3C: one in each of its two processes), sources in
turn, medians over 3 seeds. A learner solves its task when the success of its last episodes, 10 of each environment,
reaches 0.9 for the first time.
"""

import statistics
import sys
import time
from contextlib import closing
from typing import NamedTuple

import numpy as np
import torch

from icrl.app.compose import load_config
from icrl.envs import make_env
from icrl.envs.tasks import split_tasks
from icrl.recording.source_agents import SOLVED, EpisodeStatistics
from icrl.sources.collect import collect, make_experience, make_learners, make_unroll_worker

SOURCES = ("a2c", "a3c", "ppo", "q_learning", "dqn", "noise_distillation", "optimal", "random")
SEEDS = (0, 1, 2)
CPU = torch.device("cpu")
NUM_CHECKS = 60  # of the learners, along their lives


class Life(NamedTuple):
    """Results of one run."""

    solved_at_end: float  # part of the learners
    tasks_solved: float  # part of the tasks that all their learners solve
    steps_to_solve: float  # median env steps of a learner, infinite if most never solve it
    steps_per_second: float


def live(overrides: list[str]) -> Life:
    """Train all learners of a configuration over their whole lives."""
    config = load_config(["source.num_learners=4", *overrides])
    source, env = config.source, make_env(config.env)
    tasks = env.all_tasks()
    split = split_tasks(env, config)
    train = tasks[split.train]
    learner, streams, noise = make_learners(config, env, train, CPU)
    statistics_of = EpisodeStatistics(env.spec, learner.num_learners, source.num_envs)
    solved_at = np.full(learner.num_learners, np.inf)
    success, steps, spent, next_check = np.zeros(learner.num_learners), 0, 0.0, 0.0
    with closing(make_unroll_worker(config, env, learner, streams, noise, 0)) as worker:
        loop = collect(learner, worker, make_experience(config, env.spec, train, CPU))
        start = time.perf_counter()
        for transitions, _, _ in loop:
            spent += time.perf_counter() - start
            statistics_of.add(transitions)
            steps += len(transitions.obs) * source.num_envs
            if steps >= next_check:
                next_check += source.history_steps / NUM_CHECKS
                success = np.nan_to_num(statistics_of.summary()["success"])
                solved_at = np.where((success >= SOLVED) & np.isinf(solved_at), steps, solved_at)
            start = time.perf_counter()
    good = (np.nan_to_num(statistics_of.summary()["success"]) >= SOLVED).reshape(len(train), -1)
    rate = steps * learner.num_learners / spent
    return Life(good.mean().item(), good.all(axis=1).mean().item(), float(np.median(solved_at)), rate)


def main() -> None:
    torch.set_num_threads(1)
    options = [word for word in sys.argv[1:] if "=" in word]
    named = [word for word in sys.argv[1:] if "=" not in word] or SOURCES
    found: dict[str, list[Life]] = {source: [] for source in named}
    for seed in SEEDS:
        for source, lives in found.items():
            lives.append(live([f"source={source}", f"seed={seed}", *options]))
    print(
        f"{'source':<14}{'learners solved':>17}{'tasks solved by all':>21}{'env steps to solve':>20}{'env steps/s':>14}"
    )
    for source, lives in found.items():
        solved, tasks, steps, rate = (statistics.median(column) for column in zip(*lives, strict=True))
        print(f"{source:<14}{solved:>17.3f}{tasks:>21.3f}{steps:>20,.0f}{rate:>14,.0f}")


if __name__ == "__main__":
    main()
