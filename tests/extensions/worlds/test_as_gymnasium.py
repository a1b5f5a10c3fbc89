"""The worlds of this extension as Gymnasium environments: ids, streams, pictures, tasks and refusals."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gym_checks import check_id, check_native, check_task, check_wrong
from small_worlds import bandit

from icrl.envs.core import MapView
from icrl.envs.gym.as_gymnasium import make_batched, make_single
from icrl.envs.render import render_cells

KEYS = "icrl/DarkKeyToDoor-v0"
BANDITS = [f"icrl/Bandit{kind}-v0" for kind in ("", "Gaussian", "Linear", "Contextual")]
MDPS = ["icrl/Garnet-v0", "icrl/AnyMDP-v0"]
IDS = [KEYS, *BANDITS, *MDPS]
VECTORS = {"icrl/PointRobot-v0": 20, "icrl/PointRobotSparse-v0": 20, "icrl/CartPole-v0": 200, "icrl/Pendulum-v0": 200}
LIMITS = {KEYS: 50} | dict.fromkeys(BANDITS, 1) | dict.fromkeys(MDPS, 20) | VECTORS
KEY_TO_DOOR = {"name": "dark_key_to_door", "size": 3, "random_start": False, "show_key": True}
BANDIT = {"name": "bandit", "num_arms": 4, "distribution": "bernoulli", "deviation": 0.5, "num_tasks": 9}
BANDIT["tasks_seed"] = 0


def shown(cell: int, view: MapView) -> np.ndarray:
    return render_cells(np.array([cell]), view)[0]


def test_importing_the_library_registers_every_world() -> None:
    assert {name: gymnasium.spec(name).max_episode_steps for name in LIMITS} == LIMITS


@pytest.mark.parametrize("env_id", IDS)
def test_check_env_has_no_complaint(env_id: str) -> None:
    check_id(env_id)


@pytest.mark.parametrize(
    ("env_id", "options"),
    [*((name, "others") for name in IDS), (KEYS, "registered"), *((name, "task") for name in (KEYS, IDS[1], IDS[-1]))],
)
def test_native_vector_equals_gymnasiums_own(env_id: str, options: str) -> None:
    others = {"num_arms": 3} if env_id in BANDITS else {"num_actions": 3, "num_states": 5}
    others = {"random_start": True, "size": 4, "show_key": True} if env_id == KEYS else others
    task = {"task": [41, 7] if env_id == KEYS else [41]}
    given: Any = {"registered": {}, "others": {**others, "max_episode_steps": 6}, "task": task}[options]
    contexts, arms = (4, 5) if "Contextual" in env_id else (1, 10)
    sizes = (contexts, given.get("num_arms", arms)) if env_id in BANDITS else (given.get("num_states", 16), 0)
    sizes = (sizes[0], given.get("num_actions", 4)) if env_id in MDPS else sizes
    sizes = (given.get("size", 9) ** 2 * (1 + given.get("show_key", False)), 5) if env_id == KEYS else sizes
    check_native(env_id, given, sizes)


def test_render_shows_the_arm_pulled_last() -> None:
    """And none before the first pull of a stream; over the end of episodes of one pull each too."""
    options = {**BANDIT, "task": [3], "max_episode_steps": 1, "render_mode": "rgb_array"}
    single, batched = make_single(**options), make_batched(2, **options)
    view = MapView(1, 4, (int(bandit(num_arms=4, num_tasks=9).means[3].argmax()),))
    single.reset(seed=0), batched.reset(seed=0)
    assert np.array_equal([single.render(), *batched.render()], [shown(-1, view)] * 3)
    for arm in (2, 0):
        single.step(np.int64(arm)), batched.step(np.array([arm, 1]))
        assert np.array_equal([single.render(), *batched.render()], [shown(each, view) for each in (arm, arm, 1)])
        single.reset()
        assert np.array_equal(single.render(), shown(arm, view))
    batched.reset(seed=1, options={"reset_mask": np.array([False, True])})
    assert np.array_equal(batched.render(), [shown(0, view), shown(-1, view)])


@pytest.mark.parametrize(
    ("world", "given", "rows"),
    [
        (KEY_TO_DOOR, {"key": (1, 2), "door": (2, 0)}, [5, 6]),
        (KEY_TO_DOOR, {"task": ((1, 2), 6)}, [5, 6]),
        (KEY_TO_DOOR, {"key": (0, 0), "doors": [(0, 1), (2, 1)]}, [[0, 1], [0, 7]]),
        (KEY_TO_DOOR, {"tasks": [[(1, 0), 1], [4, (2, 1)]]}, [[3, 1], [4, 7]]),
        (BANDIT, {"task": np.array([8])}, [8]),
        (BANDIT, {"bandits": range(4, 6)}, [[4], [5]]),
    ],
)
def test_a_task_is_given_as_a_row_or_by_its_columns(world: Any, given: Any, rows: list[Any]) -> None:
    check_task(world, given, rows)


@pytest.mark.parametrize(
    ("world", "given", "message"),
    [
        (KEY_TO_DOOR, {"key": 4, "door": (1, 1)}, r"key=4, door=\(1, 1\): must be.* 72 tasks \(key, door\)"),
        (KEY_TO_DOOR, {"key": (1, 1)}, "key: a task is given by task alone, or by all of key, door"),
        (BANDIT, {"bandit": 9}, r"bandit=9: must be one of the world's 9 tasks \(bandit\)$"),
        (BANDIT, {"bandit": (0, 1)}, r"bandit=\(0, 1\)"),
        (BANDIT, {"distribution": "uniform"}, "distribution=uniform: must be one of bernoulli, gaussian"),
    ],
)
def test_wrong_arguments_are_refused(world: dict[str, Any], given: dict[str, Any], message: str) -> None:
    check_wrong(world, given, message)
