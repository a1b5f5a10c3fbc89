"""The keyword arguments of Gymnasium's `make`: which world and which task they give, and which are refused."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Discrete

from icrl.envs.gym.face import BatchedEnv, SingleEnv, make_batched, make_single

ROOM = {"name": "dark_room", "size": 3, "random_start": False, "terminate_on_goal": True, "permute_actions": False}
KEY_TO_DOOR = {"name": "dark_key_to_door", "size": 3, "random_start": False, "show_key": True}
BANDIT = {
    "name": "bandit",
    "num_arms": 4,
    "distribution": "bernoulli",
    "deviation": 0.5,
    "num_tasks": 9,
    "tasks_seed": 0,
}


def single(env_id: str, **options: Any) -> SingleEnv:
    env = gymnasium.make(f"icrl.envs:{env_id}", **options).unwrapped
    assert isinstance(env, SingleEnv)
    return env


def sizes(env_id: str, **options: Any) -> tuple[int, int]:
    env = single(env_id, **options)
    assert isinstance(env.observation_space, Discrete) and isinstance(env.action_space, Discrete)
    return int(env.observation_space.n), int(env.action_space.n)


def test_options_reach_the_world() -> None:
    assert sizes("icrl/DarkRoom-v0") == (81, 5)
    assert sizes("icrl/DarkRoomHard-v0") == (289, 5)
    assert sizes("icrl/DarkRoomPermuted-v0", size=4) == (16, 5)
    assert sizes("icrl/DarkKeyToDoor-v0") == (81, 5)
    assert sizes("icrl/DarkKeyToDoor-v0", show_key=True, size=4) == (32, 5)
    assert sizes("icrl/Bandit-v0") == (1, 10)
    assert sizes("icrl/BanditGaussian-v0", num_arms=3, num_tasks=5) == (1, 3)
    assert single("icrl/DarkRoom-v0", random_start=True).reset(seed=0)[0] != 40


def test_limits_are_those_of_the_presets() -> None:
    limits = {
        "DarkRoom": 20,
        "DarkRoomClassic": 20,
        "DarkRoomHard": 20,
        "DarkRoomPermuted": 20,
        "DarkKeyToDoor": 50,
        "Bandit": 1,
        "BanditGaussian": 1,
        "PointGameHost": 100,
        "PointGameAgent": 100,
    }
    registered = {env_id: spec for env_id, spec in gymnasium.registry.items() if env_id.startswith("icrl/")}
    assert {env_id: spec.max_episode_steps for env_id, spec in registered.items()} == {
        f"icrl/{name}-v0": limit for name, limit in limits.items()
    }


@pytest.mark.parametrize(
    ("world", "given", "row"),
    [
        (ROOM, {"goal": (1, 2)}, [5]),
        (ROOM, {"goal": np.array([1, 2])}, [5]),
        (ROOM, {"goal": 5}, [5]),
        (ROOM, {"task": [5]}, [5]),
        (ROOM, {"task": [(1, 2)]}, [5]),
        ({**ROOM, "random_start": True}, {"goal": (1, 1)}, [4]),
        ({**ROOM, "permute_actions": True}, {"goal": (1, 2), "permutation": 7}, [5, 7]),
        ({**ROOM, "permute_actions": True}, {"task": [5, 7]}, [5, 7]),
        (KEY_TO_DOOR, {"key": (1, 2), "door": (2, 0)}, [5, 6]),
        (KEY_TO_DOOR, {"task": ((1, 2), 6)}, [5, 6]),
        (BANDIT, {"bandit": 8}, [8]),
        (BANDIT, {"task": np.array([8])}, [8]),
        (BANDIT, {"task": None}, None),
        (BANDIT, {}, None),
    ],
)
def test_a_task_may_be_given_as_a_row_or_by_its_columns(
    world: dict[str, Any], given: dict[str, Any], row: list[int] | None
) -> None:
    assert make_single(**world, **given).task == row
    batched = make_batched(3, **world, **given)
    batched.reset(seed=0)
    if row is not None:
        assert batched._state is not None and batched._state.task.tolist() == [row] * 3


@pytest.mark.parametrize(
    ("world", "given", "rows"),
    [
        (ROOM, {"goals": [(0, 0), (2, 1)]}, [[0], [7]]),
        (ROOM, {"tasks": [[0], [7]]}, [[0], [7]]),
        (ROOM, {"tasks": np.array([[0], [7]])}, [[0], [7]]),
        (KEY_TO_DOOR, {"key": (0, 0), "doors": [(0, 1), (2, 1)]}, [[0, 1], [0, 7]]),
        (KEY_TO_DOOR, {"keys": [3, 4], "doors": [(0, 1), (2, 1)]}, [[3, 1], [4, 7]]),
        (KEY_TO_DOOR, {"tasks": [[(1, 0), 1], [4, (2, 1)]]}, [[3, 1], [4, 7]]),
        (BANDIT, {"bandits": range(4, 6)}, [[4], [5]]),
    ],
)
def test_every_stream_may_have_its_own_task(
    world: dict[str, Any], given: dict[str, Any], rows: list[list[int]]
) -> None:
    env = make_batched(2, **world, **given)
    for seed in (0, 1):
        env.reset(seed=seed)
        assert env._state is not None and env._state.task.tolist() == rows


@pytest.mark.parametrize(
    ("world", "given", "message"),
    [
        (ROOM, {"goal": (3, 0)}, r"goal=\(3, 0\): must be.* 8 tasks \(goal\), a cell as \(row, column\).*< size=3"),
        (ROOM, {"goal": (0, 3)}, r"goal=\(0, 3\)"),
        (ROOM, {"goal": (0, -1)}, r"goal=\(0, -1\).*>= 0"),
        (ROOM, {"goal": (1, 1)}, r"goal=\(1, 1\).*8 tasks"),  # where every episode starts
        (ROOM, {"goal": (1.0, 2)}, r"goal=\(1.0, 2\)"),
        (ROOM, {"goal": (1, 2, 0)}, r"goal=\(1, 2, 0\)"),
        (ROOM, {"goal": "up"}, "goal=up"),
        (ROOM, {"task": 5}, "task=5: must be"),
        (ROOM, {"task": [9]}, r"task=\[9\]"),
        (ROOM, {"task": [5, 0]}, r"task=\[5, 0\]"),
        (ROOM, {"task": [5], "goal": (1, 2)}, "task, goal: a task is given by task alone, or by all of goal"),
        (
            KEY_TO_DOOR,
            {"key": (1, 1), "door": (1, 1)},
            r"key=\(1, 1\), door=\(1, 1\): must be.* 72 tasks \(key, door\)",
        ),
        (KEY_TO_DOOR, {"key": (1, 1)}, "key: a task is given by task alone, or by all of key, door"),
        (BANDIT, {"bandit": 9}, r"bandit=9: must be one of the world's 9 tasks \(bandit\)$"),
        (BANDIT, {"bandit": (0, 1)}, r"bandit=\(0, 1\)"),
        (ROOM, {"size": 1}, "size=1: must be int >= 2 and <= 64"),
        (ROOM, {"size": 3.0}, "size=3.0: must be int >= 2"),
        (ROOM, {"size": True}, "size=True: must be int"),
        (ROOM, {"random_start": 1}, "random_start=1: must be bool"),
        (BANDIT, {"distribution": "uniform"}, "distribution=uniform: must be one of bernoulli, gaussian"),
        (BANDIT, {"deviation": 0}, "deviation=0: must be float > 0 and <= 10"),
        (BANDIT, {"deviation": True}, "deviation=True: must be float"),
        (BANDIT, {"deviation": "wide"}, "deviation='wide': must be float"),
        (ROOM, {"max_episode_steps": 0}, "max_episode_steps=0: must be an int >= 1"),
        (ROOM, {"render_mode": "human"}, "render_mode='human': must be 'rgb_array' or None"),
    ],
)
def test_values_out_of_range_are_refused(world: dict[str, Any], given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_single(**{**world, **given})
    with pytest.raises(ValueError, match=message):
        make_batched(2, **{**world, **given})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"num_envs": 0}, "num_envs=0: must be an int >= 1"),
        ({"goals": [(0, 0)]}, "goals=.*must be num_envs=2 of them"),
        ({"goals": [(0, 0), (0, 1)], "goal": (1, 2)}, r"goal=\(1, 2\) must be None then"),
        ({"goals": [(0, 0), (0, 3)]}, r"goal=\(0, 3\)"),
        ({"tasks": [[0], [1]], "goal": (0, 0)}, "task alone"),
    ],
)
def test_bad_tasks_of_streams_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_batched(**{"num_envs": 2, **ROOM, **given})


def test_unknown_and_missing_arguments_are_refused() -> None:
    with pytest.raises(TypeError, match=r"key=\(0, 0\): no such argument; the task may be given as task, goal"):
        make_single(**ROOM, key=(0, 0))
    with pytest.raises(TypeError, match="goals="):  # a single environment has one goal
        make_single(**ROOM, goals=[(0, 0)])
    with pytest.raises(TypeError, match="permutation=3"):
        make_batched(2, **ROOM, permutation=3)
    with pytest.raises(TypeError, match="size"):
        make_single(name="dark_room", random_start=False, terminate_on_goal=True, permute_actions=False)


def test_both_entry_points_make_the_same_world() -> None:
    for env_id in ("icrl/DarkKeyToDoor-v0", "icrl/BanditGaussian-v0"):
        batched = gymnasium.make_vec(env_id, 2, max_episode_steps=7)
        assert isinstance(batched, BatchedEnv)
        assert batched.single_observation_space == single(env_id).observation_space
        assert batched.single_action_space == single(env_id).action_space
