"""The worlds of the extension `worlds` as Gymnasium environments: ids, streams, pictures, tasks and refusals."""

import math
from typing import Any

import gymnasium
import numpy as np
import pytest
from gym_checks import check_id, check_native, check_task, check_wrong
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode
from installed import needs

from icrl import extensions
from icrl.envs.core import MapView
from icrl.envs.render import render_cells
from icrl.extensions.as_gymnasium.environments import make_batched, make_single

if "worlds" in extensions.NAMES:
    from small_worlds import bandit

pytestmark = needs("worlds")
KEYS = "icrl/DarkKeyToDoor-v0"
BANDITS = [f"icrl/Bandit{kind}-v0" for kind in ("", "Gaussian", "Linear", "Contextual")]
MDPS = ["icrl/Garnet-v0", "icrl/AnyMDP-v0"]
IDS = [KEYS, *BANDITS, *MDPS]
VECTORS = {"icrl/PointRobot-v0": 20, "icrl/PointRobotSparse-v0": 20, "icrl/CartPole-v0": 200, "icrl/Pendulum-v0": 200}
LIMITS = {KEYS: 50} | dict.fromkeys(BANDITS, 1) | dict.fromkeys(MDPS, 20)
LIMITS |= VECTORS if "vectors" in extensions.NAMES else {}
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


# ---- vectors


@needs("vectors")
@pytest.mark.filterwarnings("ignore::UserWarning")  # of unbounded observations
@pytest.mark.parametrize("env_id", VECTORS)
def test_gymnasium_takes_them(env_id: str) -> None:
    """Its checker, and its vector environment over single ones: every value, with resets in between."""
    check_env(gymnasium.make(f"icrl:{env_id}", render_mode="rgb_array").unwrapped)
    native = gymnasium.make_vec(f"icrl:{env_id}", 3)
    same_step = {"autoreset_mode": AutoresetMode.SAME_STEP}
    sync = gymnasium.make_vec(env_id, 3, vectorization_mode="sync", vector_kwargs=same_step)
    assert (native.observation_space, native.action_space) == (sync.observation_space, sync.action_space)
    native.action_space.seed(0)
    for time in range(50):
        if time in (0, 30):
            assert data_equivalence(native.reset(seed=7 + time), sync.reset(seed=7 + time), exact=True)
        actions = native.action_space.sample()
        ours, theirs = native.step(actions), sync.step(actions)
        assert data_equivalence(ours, theirs, exact=True), f"{time}: {ours} {theirs}"


@needs("vectors")
def test_a_task_is_given_by_its_numbers() -> None:
    made = gymnasium.make("icrl:icrl/PointRobot-v0", goal_x=0, goal_y=0.5).unwrapped
    made.reset(seed=0)
    assert made.step(np.array([0, 1], np.float32))[1] == pytest.approx(-0.4)
    pole = {"name": "cart_pole"}
    for options, message in (
        ({"name": "point_robot", "task": (1.0,)}, r"task=\(1.0,\): must be finite numbers \(goal_x, goal_y\)"),
        ({"name": "point_robot", "goal_x": math.nan, "goal_y": 0}, "must be finite"),
        ({"name": "point_robot", "task": "up"}, "task=up: must be"),
        ({**pole, "task": (0.5, 0.1, 1, 9.8)}, "finite numbers"),
        ({**pole, "task": (0.0, 0.1, 1, 9.8, 10)}, r"must be above 0 \(length, pole_mass, cart_mass, gravity\)"),
    ):
        with pytest.raises(ValueError, match=message):
            make_batched(2, **options)
    make_batched(2, **pole, tasks=[(0.5, 0.1, 1, 9.8, 10), (0.5, 0.1, 1, 9.8, -10)]).reset(seed=0)
    with pytest.raises(gymnasium.error.InvalidAction, match=r"must be an action of Box\(-1.0, 1.0, \(2,\), float32\)"):
        made.step(np.array([0, 2], np.float32))
