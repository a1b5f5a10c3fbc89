"""Keyword arguments of `gymnasium.make`: the world and the tasks that they give, and those that are refused."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Discrete

from icrl.envs.gym.as_gymnasium import BatchedEnv, make_batched, make_single, started

ROOM = {"name": "dark_room", "size": 3, "random_start": False, "terminate_on_goal": True, "permute_actions": False}
KEY_TO_DOOR = {"name": "dark_key_to_door", "size": 3, "random_start": False, "show_key": True}
BANDIT = {"name": "bandit", "num_arms": 4, "distribution": "bernoulli", "deviation": 0.5, "num_tasks": 9}
BANDIT["tasks_seed"] = 0


@pytest.mark.parametrize(
    ("name", "options", "sizes"),
    [
        ("DarkRoom", {}, (81, 5)),
        ("DarkRoomHard", {}, (289, 5)),
        ("DarkRoomPermuted", {"size": 4}, (16, 5)),
        ("DarkKeyToDoor", {}, (81, 5)),
        ("DarkKeyToDoor", {"show_key": True, "size": 4}, (32, 5)),
        ("Bandit", {}, (1, 10)),
        ("BanditGaussian", {"num_arms": 3, "num_tasks": 5}, (1, 3)),
    ],
)
def test_options_reach_the_world(name: str, options: dict[str, Any], sizes: tuple[int, int]) -> None:
    single = gymnasium.make(f"icrl/{name}-v0", **options).unwrapped
    batched = gymnasium.make_vec(f"icrl/{name}-v0", 2, max_episode_steps=7, **options)
    assert isinstance(batched, BatchedEnv)
    for spaces in (
        (single.observation_space, single.action_space),
        (batched.single_observation_space, batched.single_action_space),
    ):
        assert spaces == tuple(map(Discrete, sizes))


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
def test_a_task_is_given_as_a_row_or_by_its_columns(
    world: dict[str, Any], given: dict[str, Any], row: list[int] | None
) -> None:
    for batched, number in ((make_single(**world, **given)._batched, 1), (make_batched(3, **world, **given), 3)):
        batched.reset(seed=0)
        tasks = started(batched._state).task.tolist()
        assert tasks == [row] * number if row else set(map(tuple, tasks)) <= {(number,) for number in range(9)}


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
def test_every_stream_may_have_its_own_task(world: dict[str, Any], given: dict[str, Any], rows: list[Any]) -> None:
    env = make_batched(2, **world, **given)
    for seed in (0, 1):
        env.reset(seed=seed)
        assert started(env._state).task.tolist() == rows


@pytest.mark.parametrize(
    ("world", "given", "message"),
    [
        (ROOM, {"goal": (3, 0)}, r"goal=\(3, 0\): must be.* 8 tasks \(goal\), a cell as \(row, column\).*< size=3"),
        (ROOM, {"goal": (0, -1)}, r"goal=\(0, -1\).*>= 0"),
        (ROOM, {"goal": (1, 1)}, r"goal=\(1, 1\).*8 tasks"),  # where every episode starts
        (ROOM, {"goal": (1.0, 2)}, r"goal=\(1.0, 2\)"),
        (ROOM, {"goal": (1, 2, 0)}, r"goal=\(1, 2, 0\)"),
        (ROOM, {"goal": "up"}, "goal=up"),
        (ROOM, {"task": 5}, "task=5: must be"),
        (ROOM, {"task": [9]}, r"task=\[9\]"),
        (ROOM, {"task": [5, 0]}, r"task=\[5, 0\]"),
        (ROOM, {"task": [5], "goal": (1, 2)}, "task, goal: a task is given by task alone, or by all of goal"),
        (KEY_TO_DOOR, {"key": 4, "door": (1, 1)}, r"key=4, door=\(1, 1\): must be.* 72 tasks \(key, door\)"),
        (KEY_TO_DOOR, {"key": (1, 1)}, "key: a task is given by task alone, or by all of key, door"),
        (BANDIT, {"bandit": 9}, r"bandit=9: must be one of the world's 9 tasks \(bandit\)$"),
        (BANDIT, {"bandit": (0, 1)}, r"bandit=\(0, 1\)"),
        (ROOM, {"size": 1}, "size=1: must be int >= 2 and <= 64"),
        (ROOM, {"size": 3.5}, "size=3.5: must be int >= 2"),
        (ROOM, {"size": True}, "size=True: must be int"),
        (ROOM, {"random_start": 3}, "random_start=3: must be true or false"),
        (BANDIT, {"distribution": "uniform"}, "distribution=uniform: must be one of bernoulli, gaussian"),
        (BANDIT, {"deviation": 0}, "deviation=0: must be float > 0 and <= 10"),
        (ROOM, {"max_episode_steps": 0}, "max_episode_steps=0: must be an int >= 1"),
        (ROOM, {"render_mode": "human"}, "render_mode='human': must be 'rgb_array' or None"),
        (ROOM, {"key": (0, 0)}, r"key=\(0, 0\): no such argument; the task may be given as task, goal"),
        ({**ROOM, "size": 4}, {"permutation": 3}, "permutation=3: no such argument"),
    ],
)
def test_wrong_arguments_are_refused(world: dict[str, Any], given: dict[str, Any], message: str) -> None:
    for make in (make_single, lambda **options: make_batched(2, **options)):
        with pytest.raises((ValueError, TypeError), match=message):
            make(**{**world, **given})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"num_envs": 0}, "num_envs=0: must be an int >= 1"),
        ({"goals": [(0, 0)]}, "goals=.*must be num_envs=2 of them"),
        ({"goals": [(0, 0), (0, 1)], "goal": (1, 2)}, r"goal=\(1, 2\) must be None then"),
        ({"goals": [(0, 0), (0, 3)]}, r"goals?=\(0, 3\)"),
        ({"tasks": [[0], [1]], "goal": (0, 0)}, "task alone"),
    ],
)
def test_wrong_tasks_of_streams_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_batched(**{"num_envs": 2, **ROOM, **given})
    with pytest.raises(TypeError, match="goals="):  # a single environment has one goal
        make_single(**ROOM, goals=[(0, 0)])
