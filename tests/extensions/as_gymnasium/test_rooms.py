"""Our worlds as Gymnasium environments: against Gymnasium's own checker and vector environment, and by hand."""

import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gym_checks import check_id, check_native, check_task, check_wrong
from gymnasium.error import Error, InvalidAction, ResetNeeded
from stable_baselines3 import A2C
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from worlds import WORLDS

from icrl.envs.core import MapView
from icrl.envs.render import render_cells
from icrl.extensions.as_gymnasium.environments import (
    BatchedEnv,
    SingleEnv,
    make_batched,
    make_single,
    started,
    stream_seeds,
)

ROOMS = ["icrl/DarkRoom-v0", "icrl/DarkRoomClassic-v0", "icrl/DarkRoomHard-v0", "icrl/DarkRoomPermuted-v0"]
ROOM = {"name": "dark_room", "size": 3, "random_start": False, "terminate_on_goal": True, "permute_actions": False}


def room(**options: Any) -> SingleEnv:
    return make_single(**{**ROOM, **options})


def rooms(num_envs: int, **options: Any) -> BatchedEnv:
    return make_batched(num_envs, **{**ROOM, **options})


def test_importing_the_library_registers_every_world_without_pytorch() -> None:
    program = "import sys, icrl, gymnasium; print('torch' in sys.modules, *gymnasium.registry)"
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    loaded, *names = out.split()
    assert loaded == "False" and {*ROOMS} <= {*names}
    assert {gymnasium.spec(name).max_episode_steps for name in ROOMS} == {20}


@pytest.mark.parametrize("env_id", ROOMS)
def test_check_env_has_no_complaint(env_id: str) -> None:
    check_id(env_id)


@pytest.mark.parametrize(
    ("env_id", "options"),
    [*((name, "others") for name in ROOMS), (ROOMS[0], "registered"), (ROOMS[2], "registered"), (ROOMS[3], "task")],
)
def test_native_vector_equals_gymnasiums_own(env_id: str, options: str) -> None:
    others = {"random_start": True, "size": 4, "max_episode_steps": 6}
    task = [41, 7] if env_id == "icrl/DarkRoomPermuted-v0" else [41]
    given: Any = {"registered": {}, "others": others, "task": {"task": task}}[options]
    check_native(env_id, given, (given.get("size", 17 if "Hard" in env_id else 9) ** 2, 5))


@pytest.mark.parametrize("name", WORLDS)
def test_streams_equal_the_tensors(name: str) -> None:
    """In every world, over many episodes: stream i is that of seed + i, even if the caller writes to our arrays."""
    core = WORLDS[name]()
    batched = BatchedEnv(core, 4)
    shown = batched.reset(seed=11)[0]
    state, step = core.reset(started(batched._state).task, stream_seeds([11, 12, 13, 14]))
    rng, ends, earned = np.random.default_rng(1), 0, set()
    for _ in range(120):
        assert shown.tolist() == step.obs.tolist()
        shown[:] = 0
        actions = rng.integers(core.spec.num_actions, size=4)
        shown, rewards, terminated, truncated, infos = batched.step(actions)
        before, (state, step) = state, core.step(state, torch.from_numpy(actions))
        assert rewards.tolist() == [core.spec.reward_values[i] for i in core.spec.reward_index(step.reward)]
        assert [*terminated, *truncated, *infos["timestep"]] == [*step.terminated, *step.truncated, *step.timestep]
        infos["timestep"][:] = 9
        for stream in (terminated | truncated).nonzero()[0]:
            assert infos["final_obs"][stream] == step.final_obs[stream]
            assert infos["final_info"]["timestep"][stream] == before.timestep[stream] + 1
            ends += 1
        earned |= {*rewards}
    assert ends > 60
    assert len(earned) == 2 or (name in ("gaussian", "linear") and len(earned) > 10 and min(earned) < 0)


def test_the_seed_decides_goal_and_start_independently() -> None:
    env, same = rooms(900, random_start=True), rooms(900, random_start=True)
    obs, _ = env.reset(seed=0)
    assert np.array_equal(same.reset(seed=0)[0], obs) and not np.array_equal(same.reset(seed=900)[0], obs)
    pairs = np.bincount(9 * started(env._state).task[:, 0].numpy() + obs, minlength=81)
    assert pairs.min() > 0 and pairs.max() < 30  # 900 draws of 81: 11 +- 5 standard deviations


@pytest.mark.parametrize("limit", [3, 30])
def test_the_time_limit_of_make_is_the_only_clock(limit: int) -> None:
    """Even above the registered limit, with the same end in the single and the batched environment."""
    single = gymnasium.make("icrl/DarkRoomClassic-v0", max_episode_steps=limit)
    batched = gymnasium.make_vec("icrl/DarkRoomClassic-v0", 2, max_episode_steps=limit)
    single.reset(seed=0), batched.reset(seed=0)
    for time in range(1, limit + 1):
        assert single.step(0)[3] == (time == limit)
        assert batched.step(np.zeros(2, int))[3].tolist() == [time == limit] * 2


MASK = "reset_mask.*2 bools"
STARTED = [
    *(
        (lambda one, _, a=a: one.step(a), InvalidAction, r"an action of Discrete\(5\)")
        for a in (5, -1, 1.5, "up", None)
    ),
    *(
        (lambda _, two, a=a: two.step(np.array([0, a])), InvalidAction, r"2 actions of Discrete\(5\)")
        for a in (5, -1, 1.5, "up")
    ),
    *((lambda _, two, a=a: two.step(a), InvalidAction, "be 2 actions") for a in (np.zeros(3, int), np.int64(0))),
    *(
        (lambda _, two, mask=mask: two.reset(options={"reset_mask": mask}), ValueError, MASK)
        for mask in ([True, False], np.array([1, 0]), np.array([True]), np.array([False, False]), None, np.array(True))
    ),
    (lambda one, _: one.reset(seed=-1), Error, "greater or equal to zero"),
    (lambda _, two: two.reset(seed=[1]), ValueError, "num_envs=2"),
    (lambda one, _: (one.step(1), one.step(1)), ResetNeeded, "the episode has ended"),
]
NOT_STARTED = [
    (lambda one, _: one.step(np.int64(0)), ResetNeeded, r"call reset\(\) first"),
    (lambda _, two: two.step(np.zeros(2, int)), ResetNeeded, r"call reset\(\) first"),
    (lambda _, two: two.render(), ResetNeeded, r"call reset\(\) first"),
    (lambda _, two: two.reset(options={"reset_mask": np.array([True, False])}), ResetNeeded, "every stream"),
]


@pytest.mark.parametrize("case", STARTED + NOT_STARTED)
def test_wrong_calls_are_refused(case) -> None:
    call, error, message = case
    single, batched = room(max_episode_steps=1, render_mode="rgb_array"), rooms(2, render_mode="rgb_array")
    if case in STARTED:
        single.reset(seed=0), batched.reset(seed=0)
    with pytest.raises(error, match=message):
        call(single, batched)


def shown(cell: int, view: MapView) -> np.ndarray:
    return render_cells(np.array([cell]), view)[0]


def test_render_shows_agent_and_goal_of_each_stream() -> None:
    """The last frame of an episode shows its last cell."""
    single = room(goal=(1, 2), render_mode="rgb_array")
    batched = rooms(2, goals=[(0, 0), (2, 2)], render_mode="rgb_array")
    single.reset(seed=0), batched.reset(seed=0)
    view, *views = (MapView(3, 3, (goal,)) for goal in (5, 0, 8))
    assert np.array_equal([single.render(), *batched.render()], [shown(4, each) for each in (view, *views)])
    single.step(np.int64(2)), batched.step(np.array([2, 3]))
    frames = [shown(5, view), shown(5, views[0]), shown(7, views[1])]
    assert np.array_equal([single.render(), *batched.render()], frames)
    single.reset()
    assert np.array_equal(single.render(), shown(4, view))
    for env in (room(), rooms(2)):
        env.reset(seed=0)
        with pytest.warns(UserWarning, match="rgb_array"):
            assert env.render() is None


def test_a2c_of_stable_baselines_learns_to_reach_the_goal() -> None:
    options = {"size": 3, "goal": (0, 0), "max_episode_steps": 4}
    parallel = make_vec_env("icrl/DarkRoom-v0", n_envs=4, seed=0, env_kwargs=options)
    model = A2C("MlpPolicy", parallel, learning_rate=3e-3, seed=0, device="cpu")
    assert evaluate_policy(model, parallel, 200, deterministic=False)[0] < 0.35
    assert evaluate_policy(model.learn(4000), parallel, 200)[0] > 0.9


@pytest.mark.parametrize(
    ("world", "given", "rows"),
    [
        (ROOM, {"goal": (1, 2)}, [5]),
        (ROOM, {"task": [(1, 2)]}, [5]),
        (ROOM, {"goals": [(0, 0), (2, 1)]}, [[0], [7]]),
        (ROOM, {"tasks": np.array([[0], [7]])}, [[0], [7]]),
        ({**ROOM, "random_start": True}, {"goal": (1, 1)}, [4]),
        ({**ROOM, "permute_actions": True}, {"goal": (1, 2), "permutation": 7}, [5, 7]),
    ],
)
def test_a_task_is_given_as_a_row_or_by_its_columns(world: Any, given: Any, rows: list[Any]) -> None:
    """One for all streams, which a single environment takes too, or one for each."""
    check_task(world, given, rows)


@pytest.mark.parametrize(
    ("world", "given", "message"),
    [
        (ROOM, {"goal": (3, 0)}, r"goal=\(3, 0\): must be.* 8 tasks \(goal\), a cell as \(row, column\).*< size=3"),
        (ROOM, {"goal": (0, -1)}, r"goal=\(0, -1\).*>= 0"),
        (ROOM, {"goal": (1, 1)}, r"goal=\(1, 1\).*8 tasks"),  # where every episode starts
        (ROOM, {"goal": (1.0, 2)}, r"goal=\(1.0, 2\)"),
        (ROOM, {"task": 5}, "task=5: must be"),
        (ROOM, {"task": [5, 0]}, r"task=\[5, 0\]"),
        (ROOM, {"task": [5], "goal": (1, 2)}, "task, goal: a task is given by task alone, or by all of goal"),
        (ROOM, {"size": 1}, "size=1: must be int >= 2 and <= 64"),
        (ROOM, {"random_start": 3}, "random_start=3: must be true or false"),
        (ROOM, {"max_episode_steps": 0}, "max_episode_steps=0: must be an int >= 1"),
        (ROOM, {"render_mode": "human"}, "render_mode='human': must be 'rgb_array' or None"),
        (ROOM, {"key": (0, 0)}, r"key=\(0, 0\): no such argument; the task may be given as task, goal"),
        (ROOM, {"num_envs": 0}, "num_envs=0: must be an int >= 1|multiple values"),
        (ROOM, {"goals": [(0, 0)]}, "goals=.*(must be num_envs=2 of them|no such argument)"),
        (ROOM, {"goals": [(0, 0), (0, 1)], "goal": (1, 2)}, r"goal=\(1, 2\) must be None then|goals=.*no such"),
        (ROOM, {"goals": [(0, 0), (0, 3)]}, r"goal=\(0, 3\)|goals=.*no such argument"),
    ],
)
def test_wrong_arguments_are_refused(world: dict[str, Any], given: dict[str, Any], message: str) -> None:
    """A single environment has one goal."""
    check_wrong(world, given, message)
