"""Env steps per second of stage one, updates included, against Stable-Baselines3's A2C with ten environments.

    python -m benchmarks.source_throughput

The peer trains one agent, as it is built to; ours trains the 57 of `experiment=reference`, and the default's.
"""

import gymnasium
import torch
from stable_baselines3 import A2C as PeerA2C

import src.envs  # noqa: F401  registers the environments
from benchmarks.measure import show, side_by_side
from src.config import load_config
from src.envs import make_env
from src.envs.tasks import split_tasks
from src.training.collect import collect, make_learners

UPDATES, PEER_STEPS = 50, 5000


def main() -> None:
    torch.set_num_threads(1)

    def ours(overrides: list[str]):  # noqa: ANN202
        config = load_config(overrides)
        env = make_env(config.env)
        tasks = env.all_tasks()
        train = tasks[split_tasks(len(tasks), config.tasks.num_train, 0).train]
        learner, streams, noise = make_learners(config, env, train, torch.device("cpu"))
        loop = collect(env, learner, streams, noise, config.source.rollout_len)

        def work() -> int:
            for _ in range(UPDATES):
                transitions, _, _ = next(loop)
            return UPDATES * transitions.obs.numel()

        return work

    from stable_baselines3.common.env_util import make_vec_env

    peer = PeerA2C(
        "MlpPolicy",
        make_vec_env(lambda: gymnasium.make("icrl/DarkRoom-v0", goal=(0, 0)), n_envs=10),
        n_steps=10,
        learning_rate=1e-4,
        device="cpu",
    )
    rates = side_by_side(
        {
            "Stable-Baselines3 A2C, 10 environments": lambda: peer.learn(PEER_STEPS).num_timesteps,
            "experiment=reference, 57 agents": ours(["experiment=reference"]),
            "experiment=default": ours([]),
        },
        rounds=5,
    )
    show(rates, "env step", "Stable-Baselines3 A2C, 10 environments")


if __name__ == "__main__":
    main()
