"""Stage one with its updates, which several benchmarks measure."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice

import torch

from icrl.app.compose import load_config
from icrl.app.root import Config
from icrl.contracts import Rollout
from icrl.envs import make_env
from icrl.envs.tasks import split_tasks
from icrl.sources.collect import UnrollWorker, collect, make_experience, make_learners

UPDATES = 50
CPU = torch.device("cpu")


def unrolls(config: Config, device: torch.device) -> Iterator[Rollout]:
    """Transitions of each iteration of stage one."""
    env = make_env(config.env, device)
    tasks = env.all_tasks().to(device)
    train = tasks[split_tasks(env, config).train]
    learner, streams, noise = make_learners(config, env, train, device)
    experience = make_experience(config, env.spec, train, device)
    worker = UnrollWorker(config.source, env, learner, streams, noise)
    return (transitions for transitions, _, _ in collect(learner, worker, experience))


def played(loop: Iterator[Rollout], times: int) -> int:
    """Env steps of the next `times` iterations."""
    return sum(transitions.obs.numel() for transitions in islice(loop, times))


def ours(overrides: list[str], device: torch.device = CPU, times: int = UPDATES) -> Callable[[], int]:
    """Work of some updates of all agents of a configuration; a call returns the number of env steps."""
    config = load_config([*overrides, "source.num_env_steps=2500000"])  # more than a benchmark plays
    return partial(played, unrolls(config, device), times)
