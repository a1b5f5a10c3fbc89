"""Our worlds as Gymnasium environments: against Gymnasium's own checker and vector environment, and by hand."""

import math
import subprocess
import sys
import warnings
from collections.abc import Iterable
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.error import Error, InvalidAction, ResetNeeded
from gymnasium.spaces import Discrete
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from installed import needs
from stable_baselines3 import A2C
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from worlds import WORLDS

from icrl.envs.core import MapView
from icrl.extensions.as_gymnasium.environments import (
    BatchedEnv,
    SingleEnv,
    make_batched,
    make_single,
    started,
    stream_seeds,
)
from icrl.extensions.maps.render import render_cells

ROOMS = [f"icrl/DarkRoom{kind}-v0" for kind in ("", "Classic", "Hard", "Permuted")]
KEYS = "icrl/DarkKeyToDoor-v0"
BANDITS = [f"icrl/Bandit{kind}-v0" for kind in ("", "Gaussian", "Linear", "Contextual")]
MDPS = ["icrl/Garnet-v0", "icrl/AnyMDP-v0"]
VECTORS = ["icrl/PointRobot-v0", "icrl/PointRobotSparse-v0", "icrl/CartPole-v0", "icrl/Pendulum-v0"]

ROOM = {"name": "dark_room", "size": 3, "random_start": False, "terminate_on_goal": True, "permute_actions": False}
KEY_TO_DOOR = {"name": "dark_key_to_door", "size": 3, "random_start": False, "show_key": True}
BANDIT = {"name": "bandit", "num_arms": 4, "distribution": "bernoulli", "num_tasks": 9}


def of(extension: str, cases: Iterable[tuple[Any, ...]]) -> list[Any]:
    """Cases that need an extension."""
    return [pytest.param(*case, marks=needs(extension)) for case in cases]


def room(**options: Any) -> SingleEnv:
    return make_single(**{**ROOM, **options})


def rooms(num_envs: int, **options: Any) -> BatchedEnv:
    return make_batched(num_envs, **{**ROOM, **options})


def test_importing_the_library_registers_every_world_without_pytorch() -> None:
    program = "import sys, icrl, gymnasium; print('torch' in sys.modules, *gymnasium.registry)"
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    loaded, *names = out.split()
    assert loaded == "False" and {*ROOMS} <= {*names}


# Steps of an episode, and numbers of observations and actions of discrete worlds.
REGISTERED: list[Any] = [(name, 20, (289 if "Hard" in name else 81, 5)) for name in ROOMS]
REGISTERED += of("worlds", [(KEYS, 50, (81, 5))])
REGISTERED += of("worlds", [(name, 1, (4, 5) if "Contextual" in name else (1, 10)) for name in BANDITS])
REGISTERED += of("worlds", [(name, 20, (16, 4)) for name in MDPS])
REGISTERED += of("vectors", [(name, 20 if "Robot" in name else 200, None) for name in VECTORS])


@pytest.mark.parametrize(("env_id", "limit", "sizes"), REGISTERED)
def test_registered_worlds_have_their_limit_and_their_spaces(env_id: str, limit: int, sizes: Any) -> None:
    made = gymnasium.make(f"icrl:{env_id}")
    assert made.spec.max_episode_steps == limit
    assert sizes is None or (made.observation_space, made.action_space) == tuple(map(Discrete, sizes))


CHECKED: list[Any] = [(ROOMS[3], None), (ROOMS[0], "rgb_array")]
CHECKED += of("worlds", [(name, "rgb_array") for name in (KEYS, BANDITS[3], MDPS[0])])
CHECKED += of("vectors", [(name, "rgb_array") for name in VECTORS[1:3]])


@pytest.mark.parametrize(("env_id", "render_mode"), CHECKED)
def test_check_env_has_no_complaint(env_id: str, render_mode: str | None) -> None:
    """About one of each class of worlds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore" if env_id in VECTORS else "error")  # of unbounded observations
        check_env(gymnasium.make(f"icrl:{env_id}", render_mode=render_mode).unwrapped)


OTHER_ROOM = {"random_start": True, "size": 4, "max_episode_steps": 6}
OTHER_BANDIT = {"num_arms": 3, "num_tasks": 9, "max_episode_steps": 6}
OTHER_MDP = {"num_actions": 3, "num_states": 5, "num_tasks": 9, "max_episode_steps": 6}
NATIVE: list[Any] = [(ROOMS[1], OTHER_ROOM), (ROOMS[3], {"size": 4, "task": [4, 7]})]
NATIVE += of("worlds", [(KEYS, OTHER_ROOM | {"show_key": True}), (KEYS, {"task": [41, 7]})])
NATIVE += of("worlds", [(BANDITS[1], OTHER_BANDIT), (BANDITS[3], OTHER_BANDIT), (BANDITS[0], {"task": [41]})])
NATIVE += of("worlds", [(MDPS[1], OTHER_MDP)])
NATIVE += of("vectors", [(name, {}) for name in VECTORS[1:3]])


@pytest.mark.filterwarnings("ignore::UserWarning")  # of unbounded observations
@pytest.mark.parametrize(("env_id", "given"), NATIVE)
def test_native_vector_equals_gymnasiums_own(env_id: str, given: dict[str, Any]) -> None:
    """Every value, type and info of many episodes, with resets by seed, by list of seeds and by mask in between."""
    native = gymnasium.make_vec(f"icrl:{env_id}", 5, **given)
    same_step = {"autoreset_mode": AutoresetMode.SAME_STEP}
    sync = gymnasium.make_vec(env_id, 5, vectorization_mode="sync", vector_kwargs=same_step, **given)
    assert isinstance(native, BatchedEnv) and isinstance(sync, SyncVectorEnv)
    assert native.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert (native.observation_space, native.action_space) == (sync.observation_space, sync.action_space)
    native.action_space.seed(0)
    resets = {
        0: {"seed": 7},
        30: {},
        36: {"options": {"reset_mask": np.array([True, False, True, False, False])}},
        44: {"seed": 3, "options": {"reset_mask": np.array([False, True, True, False, False])}},
        52: {"seed": [4, None, 2**70, None, 0]},
    }
    for time in range(60):
        if time in resets:
            assert data_equivalence(native.reset(**resets[time]), sync.reset(**resets[time]), exact=True)
        actions = native.action_space.sample()
        ours, theirs = native.step(actions), sync.step(actions)
        assert data_equivalence(ours, theirs, exact=True), f"{time}: {ours} {theirs}"


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


ACTIONS = r"actions? of Discrete\(5\)"
MASK = "reset_mask.*2 bools"
STARTED = [
    *((lambda one, _, a=a: one.step(a), InvalidAction, f"an {ACTIONS}") for a in (5, -1, 1.5)),
    *((lambda _, two, a=a: two.step(np.array([0, a])), InvalidAction, f"2 {ACTIONS}") for a in (5, "up")),
    (lambda _, two: two.step(np.zeros(3, int)), InvalidAction, "be 2 actions"),
    *(
        (lambda _, two, mask=mask: two.reset(options={"reset_mask": mask}), ValueError, MASK)
        for mask in ([True, False], np.array([1, 0]), np.array([True]), np.array([False, False]))
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


@needs("worlds")
def test_render_shows_the_arm_pulled_last() -> None:
    """And none before the first pull of a stream; over the end of episodes of one pull each too."""
    options = {**BANDIT, "task": [3], "max_episode_steps": 1, "render_mode": "rgb_array"}
    single, batched = make_single(**options), make_batched(2, **options)
    single.reset(seed=0), batched.reset(seed=0)
    view = batched.core.map_view(torch.tensor([3]))
    assert np.array_equal([single.render(), *batched.render()], [shown(-1, view)] * 3)
    for arm in (2, 0):
        single.step(np.int64(arm)), batched.step(np.array([arm, 1]))
        assert np.array_equal([single.render(), *batched.render()], [shown(each, view) for each in (arm, arm, 1)])
        single.reset()
        assert np.array_equal(single.render(), shown(arm, view))
    batched.reset(seed=1, options={"reset_mask": np.array([False, True])})
    assert np.array_equal(batched.render(), [shown(0, view), shown(-1, view)])


def test_a2c_of_stable_baselines_learns_to_reach_the_goal() -> None:
    options = {"size": 3, "goal": (0, 0), "max_episode_steps": 4}
    parallel = make_vec_env("icrl/DarkRoom-v0", n_envs=4, seed=0, env_kwargs=options)
    model = A2C("MlpPolicy", parallel, learning_rate=4e-3, gamma=0.8, seed=0, device="cpu")
    assert evaluate_policy(model, parallel, 50, deterministic=False)[0] < 0.35
    assert evaluate_policy(model.learn(1600), parallel, 50)[0] > 0.9


TASKS: list[Any] = [
    (ROOM, {"goal": (1, 2)}, [5]),
    (ROOM, {"task": [(1, 2)]}, [5]),
    (ROOM, {"goals": [(0, 0), (2, 1)]}, [[0], [7]]),
    (ROOM, {"tasks": np.array([[0], [7]])}, [[0], [7]]),
    (ROOM | {"random_start": True}, {"goal": (1, 1)}, [4]),
    (ROOM | {"permute_actions": True}, {"goal": (1, 2), "permutation": 7}, [5, 7]),
]
OTHER_TASKS = [
    (KEY_TO_DOOR, {"task": ((1, 2), 6)}, [5, 6]),
    (KEY_TO_DOOR, {"key": (0, 0), "doors": [(0, 1), (2, 1)]}, [[0, 1], [0, 7]]),
    (BANDIT, {"bandits": range(4, 6)}, [[4], [5]]),
]


@pytest.mark.parametrize(("world", "given", "rows"), TASKS + of("worlds", OTHER_TASKS))
def test_a_task_is_given_as_a_row_or_by_its_columns(world: Any, given: Any, rows: list[Any]) -> None:
    """One for all streams, which a single environment takes too, or one for each."""
    shared = not isinstance(rows[0], list)
    for batched in (make_batched(2, **world, **given), *([make_single(**world, **given)._batched] if shared else [])):
        for seed in (0, 1):
            batched.reset(seed=seed)
            assert started(batched._state).task.tolist() == ([rows] * batched.num_envs if shared else rows)


WRONG: list[Any] = [
    (ROOM, {"goal": (3, 0)}, r"goal=\(3, 0\): must be.* 8 tasks \(goal\), a cell as \(row, column\).*< size=3"),
    (ROOM, {"goal": (1, 1)}, r"goal=\(1, 1\).*8 tasks"),  # where every episode starts
    (ROOM, {"goal": (1.0, 2)}, r"goal=\(1.0, 2\)"),
    (ROOM, {"task": [5, 0]}, r"task=\[5, 0\]"),
    (ROOM, {"task": [5], "goal": (1, 2)}, "task, goal: a task is given by task alone, or by all of goal"),
    (ROOM, {"size": 1}, "size=1: must be int >= 2 and <= 64"),
    (ROOM, {"max_episode_steps": 0}, "max_episode_steps=0: must be an int >= 1"),
    (ROOM, {"render_mode": "human"}, "render_mode='human': must be 'rgb_array' or None"),
    (ROOM, {"key": (0, 0)}, r"key=\(0, 0\): no such argument; the task may be given as task, goal"),
    (ROOM, {"num_envs": 0}, "num_envs=0: must be an int >= 1|multiple values"),
    (ROOM, {"goals": [(0, 0)]}, "goals=.*(must be num_envs=2 of them|no such argument)"),
    (ROOM, {"goals": [(0, 0), (0, 1)], "goal": (1, 2)}, r"goal=\(1, 2\) must be None then|goals=.*no such"),
    (ROOM, {"goals": [(0, 0), (0, 3)]}, r"goal=\(0, 3\)|goals=.*no such argument"),
]
OTHER_WRONG = [
    (KEY_TO_DOOR, {"key": 4, "door": (1, 1)}, r"key=4, door=\(1, 1\): must be.* 72 tasks \(key, door\)"),
    (KEY_TO_DOOR, {"key": (1, 1)}, "key: a task is given by task alone, or by all of key, door"),
    (BANDIT, {"bandit": 9}, r"bandit=9: must be one of the world's 9 tasks \(bandit\)$"),
]


@pytest.mark.parametrize(("world", "given", "message"), WRONG + of("worlds", OTHER_WRONG))
def test_wrong_arguments_are_refused(world: dict[str, Any], given: dict[str, Any], message: str) -> None:
    """By a single environment, which has one goal, and by a batched one."""
    for make, number in ((make_single, {}), (make_batched, {"num_envs": 2})):
        with pytest.raises((ValueError, TypeError), match=message):
            make(**{**number, **world, **given})


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
