"""Env steps per second of stage one with its updates, beside A2C of Stable-Baselines3 with its best vectorisation.

    python -m benchmarks.source_throughput

Stable-Baselines3 trains one agent: with ten environments as each of our agents has, and with more, in one process
(`DummyVecEnv`), in worker processes (`SubprocVecEnv`), or batched, as our tensors behind its own interface. Stage one
trains the 57 agents of `experiment=reference`, or all of the default.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import stable_baselines3
import torch
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv

import icrl  # noqa: F401  registers the environments
from benchmarks.measure import Report, fastest, side_by_side
from benchmarks.stage_one import ours

UNROLL, PEER_STEPS = 10, 5000
WORLD = {"id": "icrl/DarkRoom-v0", "goal": (0, 0), "disable_env_checker": True}
MAKE = partial(gymnasium.make, **WORLD)
PEER = "Stable-Baselines3, environments:"


class BatchedVecEnv(VecEnv):
    """Our vector environment with the interface of Stable-Baselines3."""

    def __init__(self, num_envs: int) -> None:
        self._rooms: Any = gymnasium.make_vec("icrl/DarkRoom-v0", num_envs, goal=(0, 0))
        super().__init__(num_envs, self._rooms.single_observation_space, self._rooms.single_action_space)

    def reset(self) -> np.ndarray:
        return self._rooms.reset()[0]

    def step_async(self, actions: np.ndarray) -> None:
        self._actions = actions

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        obs, reward, terminated, truncated, found = self._rooms.step(self._actions)
        done, infos = terminated | truncated, [dict[str, Any]() for _ in obs]
        for i in done.nonzero()[0]:
            infos[i] = {"terminal_observation": found["final_obs"][i], "TimeLimit.truncated": not terminated[i]}
        return obs, reward.astype(np.float32), done, infos

    def close(self) -> None:
        self._rooms.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [getattr(self._rooms, attr_name, None)] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        setattr(self._rooms, attr_name, value)

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        return [getattr(self._rooms, method_name)(*method_args, **method_kwargs)]

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False] * self.num_envs


def peer(rooms: VecEnv) -> Callable[[], int]:
    """Work of some updates of an agent of Stable-Baselines3; a call returns the number of env steps."""
    agent = stable_baselines3.A2C("MlpPolicy", rooms, n_steps=UNROLL, learning_rate=1e-4, device="cpu")
    steps = max(PEER_STEPS, 2 * UNROLL * rooms.num_envs)
    return lambda: agent.learn(steps).num_timesteps


def main() -> None:
    torch.set_num_threads(1)
    ways = {
        f"{PEER} 10": peer(DummyVecEnv([MAKE] * 10)),
        f"{PEER} 10, batched": peer(BatchedVecEnv(10)),
        f"{PEER} 10, processes": peer(SubprocVecEnv([MAKE] * 10)),
        f"{PEER} 256": peer(DummyVecEnv([MAKE] * 256)),
        f"{PEER} 256, batched": peer(BatchedVecEnv(256)),
        f"{PEER} 2048, batched": peer(BatchedVecEnv(2048)),
        "experiment=reference, 57 agents": ours(["experiment=reference"]),
        "experiment=default, 570 agents": ours([]),
    }
    rates = side_by_side(ways, rounds=5)
    report = Report("source_throughput")
    for title, baseline in (("as many environments as an agent of ours has", f"{PEER} 10"), ("any number", PEER)):
        report.show(f"Stage one, the peer with {title}", rates, "env step", fastest(rates, baseline))


if __name__ == "__main__":
    main()
