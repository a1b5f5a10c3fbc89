"""A Gymnasium world that says which actions are legal, and fails after any other."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

from icrl.app.compose import load_config
from icrl.envs import make_env
from icrl.envs.core import TensorEnv

LENGTH, LEFT, RIGHT, WAIT = 5, 0, 1, 2


class Corridor(gymnasium.Env[Any, Any]):
    """Cells in a row; reward 1 and the end at the `goal`. No walls can be walked into, and one can wait at every
    other step, from the second on. Observations are the cell, or with `vector` a float64 vector that begins with it."""

    def __init__(self, goal: int, vector: bool = False, mask: Any = None) -> None:
        self.observation_space = Box(-9.0, 9.0, (2,), np.float64) if vector else Discrete(LENGTH)
        self.action_space = Discrete(3)
        self._goal, self._vector, self._mask = goal, vector, mask

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._cell, self._time = int(self.np_random.integers(LENGTH)), 0
        self._cell = (self._cell + 1) % LENGTH if self._cell == self._goal else self._cell
        return self._seen()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if not self._legal()[action]:
            raise ValueError(f"the action {action} is not legal")
        self._cell, self._time = self._cell + (-1, 1, 0)[action], self._time + 1
        found = self._cell == self._goal
        obs, info = self._seen()
        return obs, float(found), found, False, {} if found else info

    def _legal(self) -> np.ndarray:
        return np.array([self._cell > 0, self._cell < LENGTH - 1, self._time % 2 == 1], np.int8)

    def _seen(self) -> tuple[Any, dict[str, Any]]:
        mask = self._legal() if self._mask is None else np.array(self._mask)
        return np.array([self._cell, -1.0]) if self._vector else self._cell, {"action_mask": mask}


class Bare(Corridor):
    """The same without a word about what is legal."""

    def _seen(self) -> tuple[Any, dict[str, Any]]:
        return super()._seen()[0], {}


class Guided(Corridor):
    """The same, with what an expert does that knows the goal."""

    def __init__(self, goal: int, vector: bool = False, mask: Any = None, told: Any = None) -> None:
        super().__init__(goal, vector, mask)
        self._told = told

    def _seen(self) -> tuple[Any, dict[str, Any]]:
        obs, info = super()._seen()
        best = (RIGHT if self._goal > self._cell else LEFT) if self._told is None else self._told
        return obs, info | {"expert_action": best}


def options_of(tasks: list[dict[str, Any]], kind: str = "Corridor") -> tuple[str, ...]:
    """Options of a world with these tasks."""
    told = ",".join("{" + ", ".join(f"{name}: {value}" for name, value in task.items()) + "}" for task in tasks)
    where = ("env=gymnasium", f"env.id=masked_env:{kind}", f"env.tasks=[{told}]", "env.max_episode_steps=8")
    return *where, "env.action_mask=true", "env.width=0", "env.reward_values=[0,1]"


def corridor(vector: bool = False) -> TensorEnv:
    tasks = [{"goal": goal, "vector": str(vector).lower()} for goal in range(LENGTH)]
    return make_env(load_config(options_of(tasks)).env)
