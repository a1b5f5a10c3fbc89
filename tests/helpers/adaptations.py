"""Episodes of an evaluation that are written down, with references, and few resamples of them."""

import numpy as np

from icrl.app.compose import load_config
from icrl.evaluation.in_context import Adaptation

OPTIONS = load_config(["evaluation.num_bootstrap=200"]).evaluation


def exact(random: list[float], optimum: list[float]) -> dict[str, dict[str, list[float]]]:
    """References with these returns, which succeed in 3 steps."""
    rest = {"success": [1.0] * len(random), "steps_to_goal": [3.0] * len(random)}
    return {"random": {"returns": random, **rest}, "optimum": {"returns": optimum, **rest}}


def adaptation() -> Adaptation:
    """Two tasks, three streams, eight episodes: task 0 is solved from episode 4 on, which pays 5, task 1 never."""
    success = np.zeros((2, 3, 8))
    success[0, :, 3:] = 1
    return Adaptation(success * 5, success, np.where(success > 0, 4, 20).astype(float), np.full_like(success, 20))


def solving(num_solved: int, num_tasks: int, num_streams: int = 2) -> Adaptation:
    """The first tasks are solved in each of eight episodes, in 4 steps, the others never, in 20."""
    success = np.zeros((num_tasks, num_streams, 8))
    success[:num_solved] = 1
    steps = np.where(success > 0, 4.0, 20.0)
    return Adaptation(success, success, steps, steps)
