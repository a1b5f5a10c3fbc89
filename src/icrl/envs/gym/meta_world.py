"""ML1 of Meta-World (Yu et al., 2019, "Meta-World: a benchmark and evaluation for multi-task and meta reinforcement
learning", arXiv 1910.10897): one skill of a robot's arm, with positions of the object and of the goal that are the task.

Needs Meta-World: `pip install metaworld`.
"""

from functools import cache
from typing import Any, ClassVar

import gymnasium
import metaworld


class ML1(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Environment `env_name` (`reach-v3`, ...) of ML1 with goals drawn from `seed`. Observations do not show the goal.

    `reset(options={"task": n})` chooses one of its 50 training tasks (0 to 49) or 50 test tasks (50 to 99); it stays
    until another is chosen. The start of an episode depends on the task alone. An episode has at most 500 steps."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"], "render_fps": 80}  # pyrefly: ignore

    def __init__(self, env_name: str = "reach-v3", seed: int = 0, render_mode: str | None = None) -> None:
        made, self._tasks = _benchmark(env_name, seed)
        super().__init__(made(render_mode=render_mode))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.env.unwrapped.set_task(self._tasks[(options or {}).get("task", 0)])
        return self.env.reset(seed=seed)


@cache
def _benchmark(env_name: str, seed: int) -> tuple[Any, list[Any]]:
    """Class and tasks of an environment; to draw the tasks takes seconds."""
    found = metaworld.ML1(env_name, seed=seed)
    return found.train_classes[env_name], [*found.train_tasks, *found.test_tasks]
