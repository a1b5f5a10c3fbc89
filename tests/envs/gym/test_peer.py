"""A learner nobody here wrote learns in the environment: Stable-Baselines3's A2C on the single environment."""

from collections.abc import Callable

import gymnasium
import numpy as np
from stable_baselines3 import A2C
from stable_baselines3.common.env_util import make_vec_env

import icrl.envs  # noqa: F401  registers the environments

OPTIONS = {"size": 3, "goal": (0, 0), "max_episode_steps": 4}
NUM_EPISODES = 200


def success(env: gymnasium.Env, act: Callable[[np.int64], np.int64]) -> float:
    """The share of episodes that reach the goal."""
    reached = 0.0
    for _ in range(NUM_EPISODES):
        obs, _ = env.reset()
        done = False
        while not done:
            obs, reward, terminated, truncated, _ = env.step(act(obs))
            reached += float(reward)
            done = terminated or truncated
    return reached / NUM_EPISODES


def test_a2c_learns_to_reach_the_goal() -> None:
    env = gymnasium.make("icrl/DarkRoom-v0", **OPTIONS)
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    random = success(env, lambda obs: rng.integers(5))

    rooms = make_vec_env("icrl/DarkRoom-v0", n_envs=4, seed=0, env_kwargs=OPTIONS)
    model = A2C("MlpPolicy", rooms, learning_rate=3e-3, seed=0, device="cpu")
    model.learn(4000)
    learned = success(env, lambda obs: model.predict(obs)[0])
    assert random < 0.35
    assert learned > 0.9
