"""Env steps per second of stage one with its updates, beside A2C of Stable-Baselines3 with ten environments.

    python -m benchmarks.source_throughput

Stable-Baselines3 trains one agent. Stage one trains the 57 agents of `experiment=reference`, or all of the default.
"""

from collections.abc import Callable, Iterator
from itertools import islice

import gymnasium
import stable_baselines3
import torch
from stable_baselines3.common.env_util import make_vec_env

import icrl  # noqa: F401  registers the environments
from benchmarks.measure import show, side_by_side
from icrl.collection.collect import LocalUnrollWorker, collect, make_learners
from icrl.collection.experience import Experience
from icrl.config.compose import load_config
from icrl.config.root import Config
from icrl.contracts import Rollout
from icrl.envs import make_env
from icrl.envs.tasks import split_tasks

CPU = torch.device("cpu")
UPDATES, PEER_STEPS = 50, 5000
PEER = "Stable-Baselines3 A2C, 10 environments"


def unrolls(config: Config) -> Iterator[Rollout]:
    """Transitions of each iteration of stage one."""
    env = make_env(config.env)
    tasks = env.all_tasks()
    train = tasks[split_tasks(env, config).train]
    learner, streams, noise = make_learners(config, env, train, CPU)
    experience = Experience(config, env.spec, train, CPU)
    worker = LocalUnrollWorker(config.source, env, learner, streams, noise)
    return (transitions for transitions, _, _ in collect(learner, worker, experience))


def ours(overrides: list[str]) -> Callable[[], int]:
    """Work of some updates of all agents of a configuration; a call returns the number of env steps."""
    loop = unrolls(load_config([*overrides, "source.num_env_steps=2500000"]))  # more than the benchmark plays
    return lambda: sum(transitions.obs.numel() for transitions in islice(loop, UPDATES))


def peer() -> Callable[[], int]:
    rooms = make_vec_env(lambda: gymnasium.make("icrl/DarkRoom-v0", goal=(0, 0)), n_envs=10)
    agent = stable_baselines3.A2C("MlpPolicy", rooms, n_steps=10, learning_rate=1e-4, device="cpu")
    return lambda: agent.learn(PEER_STEPS).num_timesteps


def main() -> None:
    torch.set_num_threads(1)
    ways = {
        PEER: peer(),
        "experiment=reference, 57 agents": ours(["experiment=reference"]),
        "experiment=default": ours([]),
    }
    show(side_by_side(ways, rounds=5), "env step", PEER)


if __name__ == "__main__":
    main()
