"""ML1 of Meta-World (Yu et al., 2019, "Meta-World: a benchmark and evaluation for multi-task and meta reinforcement
learning", arXiv 1910.10897): one skill of a robot's arm. A task is where the object and the goal are.

Needs Meta-World: `pip install metaworld`.
"""

import warnings
from functools import cache
from importlib import import_module
from typing import Any, ClassVar

import gymnasium
import numpy as np


class ML1(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Environment `env_name` (`reach-v3`, ...) of ML1 with goals drawn from `seed`. Observations do not show the goal.

    `reset(options={"task": n})` begins an episode of one of its 50 training tasks (0 to 49; 0 without options) or 50
    test tasks (50 to 99). Its start depends on the task alone. An episode has at most 500 steps.
    `info["expert_action"]` is what Meta-World's script does, which sees the goal."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 80}  # pyrefly: ignore

    def __init__(self, env_name: str = "reach-v3", seed: int = 0, render_mode: str | None = None) -> None:
        made, self._tasks = _benchmark(env_name, seed)
        super().__init__(made(render_mode=render_mode))
        warnings.filterwarnings("ignore", "Constant.s. may be too high")  # of scripts: their actions are clipped
        self._script = import_module("metaworld.policies").ENV_POLICY_MAP[env_name]()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        arm: Any = self.env.unwrapped
        arm.set_task(self._tasks[(options or {}).get("task", 0)])
        obs, info = self.env.reset(seed=seed)
        return obs, self._with_script(obs, info)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, reward, terminated, truncated, self._with_script(obs, info)

    def _with_script(self, obs: Any, info: dict[str, Any]) -> dict[str, Any]:
        arm: Any = self.env.unwrapped
        goal = arm._target_pos  # where observations have zeros
        return info | {"expert_action": self._script.get_action(np.append(obs[: -len(goal)], goal))}


@cache
def _benchmark(env_name: str, seed: int) -> tuple[Any, list[Any]]:
    """Class and tasks of an environment; to draw the tasks takes seconds."""
    found = import_module("metaworld").ML1(env_name, seed=seed)
    return found.train_classes[env_name], [*found.train_tasks, *found.test_tasks]
