"""Gymnasium environment without a transition table, with one of several faults on request."""

import os
import sys
import time
from contextlib import suppress
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Sequence, Space, Text

from icrl.config.options import replace
from icrl.extensions.from_gymnasium.gymnasium_env import GymnasiumConfig, GymnasiumEnv

DRAWN = "toy_env:icrl-tests/Drawn-v0"
SHAPED = "toy_env:icrl-tests/Shaped-v0"
TOY = "toy_env:icrl-tests/Toy-v0"  # other processes import this module by its name


class Toy(gymnasium.Env):
    """Row of cells. Action 1 goes up and 0 down, but the other way with probability `slip`; the last cell pays.

    The `fault` occurs in time step `at`."""

    open_ones: ClassVar[list["Toy"]] = []
    steps_of_all = 0

    def __init__(
        self, slip: float = 0.3, size: int = 5, first: int = 0, reward: Any = 1.0, fault: str = "", at: int = 3
    ):
        self.observation_space, self.action_space = Discrete(size, start=first), Discrete(2)
        if fault == "made":
            os._exit(0)
        if fault == "spaceless":
            self.observation_space = None
        self.slip, self.last, self.reward, self.fault, self.at = slip, size - 1, reward, fault, at
        Toy.open_ones.append(self)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        if self.fault == "reset":
            raise LookupError("no such\nthing")
        if self.fault == "slow":
            time.sleep(0.15)
        self.cell, self.time = int(self.np_random.integers(self.last)), 0
        return self.cell, {}

    def step(self, action: int):
        self.time += 1
        Toy.steps_of_all += 1
        if self.time == self.at:
            self._fail()
        up = (action == 1) != (self.np_random.random() < self.slip)
        self.cell = max(0, self.cell + (1 if up else -1))
        ended = self.cell == self.last
        truncated = self.fault == "truncate" and self.time == self.at
        return np.int64(self.cell), self.reward if ended else 0, ended, truncated, {}

    def _fail(self):
        if self.fault == "step":
            raise Unpicklable(lambda: None)
        if self.fault == "exit":
            sys.exit(0)
        if self.fault == "die":
            os._exit(0)
        if self.fault == "base":
            raise BaseException("mine")
        while self.fault == "deaf":  # hears of no exception
            with suppress(Exception):
                time.sleep(0.01)
        if self.fault == "hang":
            os.write(1, b"stuck\n")
            time.sleep(1000)
        self.cell = {"obs": self.last + 7, "memory": Toy.steps_of_all % self.last}.get(self.fault, self.cell)

    def close(self):
        Toy.open_ones.remove(self)
        if self.fault == "close":
            sys.exit(0)


class Drawn(Toy):
    """`Toy` with pictures of 20 x 30 pixels: the brighter, the higher its cell."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"]}

    def __init__(self, render_mode: str | None = None, **arguments: Any):
        super().__init__(**arguments)
        self.render_mode = render_mode

    def render(self) -> Any:
        assert self.render_mode == "rgb_array"
        return np.full((20, 30, 3), 40 * self.cell, np.uint8)


OBSERVATIONS = {
    "vector": Box(-np.inf, np.inf, (3,), np.float64),
    "image": Box(0, 255, (4, 5, 3), np.uint8),
    "multi": MultiDiscrete([3, 7]),
    "dict": Dict({"place": Box(-1.0, 1.0, (2,)), "flag": Discrete(2)}),
    "matrix": Box(-1.0, 1.0, (2, 2)),
    "late": Discrete(4, start=1),
    "text": Text(5),
    "list": Sequence(Discrete(2)),
    "mission": Dict({"image": Box(0, 255, (4, 5, 3), np.uint8), "mission": Space()}),
}
ACTIONS = {
    "discrete": Discrete(3),
    "multi": MultiDiscrete([2, 4]),
    "box": Box(np.array([-0.1, 0.0]), np.array([0.1, 3.3]), dtype=np.float64),
    "free": Box(-np.inf, np.inf, (2,)),
    "late": Discrete(3, start=1),
    "whole": Box(0, 5, (2,), np.int64),
}


class Shaped(gymnasium.Env):
    """Sums of its actions, noise and attributes, as observations and actions of any kind. The `fault` occurs in step
    `at` of an episode, which has 6 steps."""

    made: ClassVar[list["Shaped"]] = []

    def __init__(self, obs: str = "vector", action: str = "box", fault: str = "", at: int = 4, weight: float = 1.0):
        self.observation_space, self.action_space = OBSERVATIONS[obs], ACTIONS[action]
        self.kind, self.fault, self.at, self.weight = obs, fault, at, weight
        self.inner, self.gains = Toy, np.ones(2)
        self.options = list[Any]()
        Shaped.made.append(self)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        super().reset(seed=seed)
        self.options.append(options)
        self.total, self.time = self.np_random.random() + (options or {}).get("start", 0.0), 0
        return self._seen(), {}

    def step(self, action: Any):
        self.time += 1
        self.total += self.weight * float(np.sum(action * self.gains)) + 0.01 * self.np_random.random()
        reward = np.nan if (self.fault, self.time) == ("reward", self.at) else self.total / 3
        return self._seen(), reward, self.time == 6, False, {}

    def _seen(self) -> Any:
        numbers = np.array([self.total, -self.total, self.time])
        if self.time == self.at and self.fault in ("nan", "inf"):
            numbers[1] = float(self.fault)
        if (self.fault, self.time) == ("shape", self.at):
            numbers = numbers[:2]
        return {
            "vector": numbers,
            "image": np.full((4, 5, 3), int(10 * self.total) % 256, np.uint8),
            "multi": np.array([self.time % 3, self.time + (9 if self.fault == "range" else 0)]),
            "dict": {"place": np.tanh(numbers[:2]).astype(np.float32), "flag": self.time % 2},
            "mission": {"image": np.full((4, 5, 3), int(10 * self.total) % 256, np.uint8), "mission": "go"},
        }[self.kind]


class Image(gymnasium.ObservationWrapper):
    """Keeps the image of an observation, as MiniGrid's ImgObsWrapper."""

    def __init__(self, env: gymnasium.Env):
        super().__init__(env)
        self.observation_space = env.observation_space["image"]

    def observation(self, observation: Any) -> Any:
        return observation["image"]


class Unpicklable(Exception):  # noqa: N818
    def __str__(self):
        return "cannot\ngo on"


gymnasium.register("icrl-tests/Toy-v0", Toy, max_episode_steps=50)
gymnasium.register("icrl-tests/Shaped-v0", Shaped, max_episode_steps=50)
gymnasium.register("icrl-tests/Drawn-v0", Drawn, max_episode_steps=50)

LAKES = [
    {"desc": ["SFF", "FHF", "FFG"], "is_slippery": False},
    {"desc": ["SFG", "FHF", "FHF"], "is_slippery": False},
    {"desc": ["SFF", "FFH", "FFG"], "is_slippery": True},
]


def lake(**changes: Any) -> GymnasiumConfig:
    """Frozen lakes of 3 x 3 cells, two of them not slippery."""
    options = {"id": "FrozenLake-v1", "tasks": LAKES, "reward_values": [0.0, 1.0], "success": "goal", "width": 3}
    return GymnasiumConfig(**{"name": "gymnasium", "variant": "lake", "max_episode_steps": 7, **options, **changes})


def played(config: GymnasiumConfig, num_workers: int = 0) -> GymnasiumEnv:
    """World as stage one plays it, here or in workers."""
    return GymnasiumEnv(replace(config, num_workers=num_workers)).in_workers()


def die() -> Any:
    raise SystemExit(1)


def use_too_much_memory() -> Any:
    raise MemoryError


def toy(**arguments: Any) -> GymnasiumConfig:
    return lake(id=TOY, tasks=[arguments], width=0, success="end")


def shaped(**changes: Any) -> GymnasiumConfig:
    """World of `Shaped` with the arguments among `changes`, and other options."""
    arguments = {key: changes.pop(key) for key in ("obs", "action", "fault", "at") if key in changes}
    tasks = [arguments, arguments | {"weight": 0.5}]
    plain = {"id": SHAPED, "tasks": tasks, "width": 0, "success": "end", "reward_values": None, "max_episode_steps": 20}
    return lake(**plain | changes)
