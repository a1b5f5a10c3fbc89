"""The Gymnasium interfaces: against Gymnasium's own checker and its own vector environment, and against each other."""

import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.error import Error, InvalidAction, ResetNeeded
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from worlds import WORLDS

import icrl.envs  # noqa: F401  registers the environments
from icrl.config.compose import load_config
from icrl.envs.core import State
from icrl.envs.gym.face import BatchedEnv, SingleEnv, make_batched, make_single, singles_of
from icrl.envs.gym.spaces import stream_seeds

ROOMS = ["icrl/DarkRoom-v0", "icrl/DarkRoomClassic-v0", "icrl/DarkRoomHard-v0", "icrl/DarkRoomPermuted-v0"]
BANDITS = ["icrl/Bandit-v0", "icrl/BanditGaussian-v0"]
IDS = [*ROOMS, "icrl/DarkKeyToDoor-v0", *BANDITS]
SMALL = {"name": "dark_room", "size": 3, "random_start": False, "terminate_on_goal": True, "permute_actions": False}
SAME_STEP = {"autoreset_mode": AutoresetMode.SAME_STEP}


def room(**options: Any) -> SingleEnv:
    return make_single(**{**SMALL, **options})


def rooms(num_envs: int, **options: Any) -> BatchedEnv:
    return make_batched(num_envs, **{**SMALL, **options})


def native_and_sync(env_id: str, num_envs: int, **options: Any) -> tuple[VectorEnv, VectorEnv]:
    native = gymnasium.make_vec(env_id, num_envs, **options)
    sync = gymnasium.make_vec(env_id, num_envs, vectorization_mode="sync", vector_kwargs=SAME_STEP, **options)
    assert isinstance(native, BatchedEnv) and isinstance(sync, SyncVectorEnv)
    return native, sync


@pytest.mark.parametrize("env_id", IDS)
def test_check_env_has_no_complaint(env_id: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for render_mode in (None, "rgb_array"):
            env = gymnasium.make(f"icrl.envs:{env_id}", render_mode=render_mode)
            check_env(env.unwrapped)


@pytest.mark.parametrize(("env_id", "terminates"), zip(ROOMS[:2], [True, False], strict=True))
def test_what_is_registered(env_id: str, terminates: bool) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        single = gymnasium.make(f"icrl.envs:{env_id}", goal=(4, 5))
        batched = gymnasium.make_vec(f"icrl.envs:{env_id}", num_envs=2, goal=(4, 5))
    assert isinstance(single.unwrapped, SingleEnv) and isinstance(batched, BatchedEnv)
    assert single.spec is not None and single.spec.max_episode_steps == 20
    assert batched.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert (single.observation_space.n, single.action_space.n) == (81, 5)
    for seed in range(3):  # a given goal stays, whatever the seed
        assert single.reset(seed=seed)[0] == 40
        assert single.step(2)[:4] == (41, 1.0, terminates, False)


@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.parametrize("options", ["registered", "others", "task"])
def test_native_vector_equals_gymnasiums_own(env_id: str, options: str) -> None:
    """Every value, type and info of many episodes, with resets by seed, by list of seeds and by mask in between."""
    others = {"num_arms": 3} if env_id in BANDITS else {"random_start": True, "size": 4}
    task = [41, 7] if env_id in ("icrl/DarkRoomPermuted-v0", "icrl/DarkKeyToDoor-v0") else [41]
    given = {"registered": {}, "others": {**others, "max_episode_steps": 6}, "task": {"task": task}}[options]
    native, sync = native_and_sync(env_id, 5, **given)
    assert native.observation_space == sync.observation_space
    assert native.action_space == sync.action_space
    rng = np.random.default_rng(0)
    resets: dict[int, dict[str, Any]] = {
        0: {"seed": 7},
        50: {},
        80: {"options": {"reset_mask": np.array([True, False, True, False, False])}},
        90: {"seed": 3, "options": {"reset_mask": np.array([False, True, True, False, False])}},
        110: {"seed": [4, None, 2**70, None, 0]},
    }
    for time in range(115):
        if time in resets:
            assert data_equivalence(native.reset(**resets[time]), sync.reset(**resets[time]), exact=True)
        actions = rng.integers(native.single_action_space.n, size=5)
        ours, theirs = native.step(actions), sync.step(actions)
        assert data_equivalence(ours, theirs, exact=True), f"{time}: {ours} {theirs}"


@pytest.mark.parametrize("name", WORLDS)
def test_stream_i_equals_a_single_environment_of_seed_plus_i(name: str) -> None:
    """In every world, over many episodes; and the single environment shows what the tensors tell."""
    batched, tensors = BatchedEnv(WORLDS[name](), 4), WORLDS[name]()
    obs, _ = batched.reset(seed=11)
    singles = [SingleEnv(WORLDS[name]()) for _ in range(4)]
    assert [single.reset(seed=11 + i)[0] for i, single in enumerate(singles)] == obs.tolist()
    tasks = torch.tensor([single.stream[: -len(State._fields) + 1] for single in singles])
    state, _ = tensors.reset(tasks, stream_seeds([11, 12, 13, 14]))
    rng = np.random.default_rng(1)
    ends, earned = 0, set[float]()
    for _ in range(120):
        actions = rng.integers(tensors.spec.num_actions, size=4)
        obs, rewards, terminated, truncated, infos = batched.step(actions)
        state, step = tensors.step(state, torch.from_numpy(actions))
        for i, single in enumerate(singles):
            single_obs, *rest, info = single.step(actions[i])
            assert rest == [rewards[i], terminated[i], truncated[i]]
            assert rest == [
                tensors.spec.reward_values[step.reward[i]],
                bool(step.terminated[i]),
                bool(step.truncated[i]),
            ]
            assert isinstance(rest[0], float)
            earned.add(rest[0])
            assert single_obs == step.final_obs[i]
            if terminated[i] or truncated[i]:
                assert infos["final_obs"][i] == single_obs
                assert infos["final_info"]["timestep"][i] == info["timestep"]
                single_obs, info = single.reset()
                ends += 1
            assert (obs[i], infos["timestep"][i]) == (single_obs, info["timestep"])
    assert ends > 60
    assert len(earned) == 2 or (name == "gaussian" and len(earned) > 10 and min(earned) < 0)


def test_seed_decides_goal_and_starts() -> None:
    """Only one goal of a seed pays, and seeds differ in it and in the starts of their episodes."""
    env = room(size=2, random_start=True, terminate_on_goal=False)

    def life(seed: int) -> tuple[tuple[int, ...], set[int]]:
        env.action_space.seed(0)
        starts, paid = [int(env.reset(seed=seed)[0])], set[int]()
        for _ in range(8):
            for _ in range(15):
                obs, reward, *_ = env.step(env.action_space.sample())
                paid |= {int(obs)} if reward else set()
            starts.append(int(env.reset()[0]))
        return tuple(starts), paid

    lives = [life(seed) for seed in range(16)]
    assert lives[:4] == [life(seed) for seed in range(4)]
    assert all(len(paid) == 1 for _, paid in lives)
    assert len({starts for starts, _ in lives}) == 16
    assert set.union(*(paid for _, paid in lives)) == set(range(4))


def test_the_goal_a_seed_draws_tells_nothing_of_the_start() -> None:
    env = rooms(900, random_start=True)
    obs, _ = env.reset(seed=0)
    assert env._state is not None
    pairs = np.bincount(9 * env._state.task[:, 0].numpy() + obs, minlength=81)
    assert pairs.min() > 0 and pairs.max() < 30  # 900 draws of 81: 11 +- 5 standard deviations


def test_every_stream_may_have_its_own_goal() -> None:
    env = rooms(3, goals=[(0, 1), (1, 2), (2, 1)])
    for _ in range(2):
        env.reset(seed=0)
        obs, rewards, terminated, truncated, infos = env.step(np.array([1, 2, 2]))
        assert (rewards.tolist(), terminated.tolist(), truncated.tolist()) == (
            [1, 1, 0],
            [True, True, False],
            [False] * 3,
        )
        assert (obs.tolist(), infos["final_obs"].tolist()) == ([4, 4, 5], [1, 5, None])
        assert infos["_final_obs"].tolist() == infos["_final_info"].tolist() == [True, True, False]
        assert infos["final_info"]["timestep"].tolist() == [1, 1, 0]
        assert infos["timestep"].tolist() == [0, 0, 1]


@pytest.mark.parametrize("limit", [3, 30, 300])
def test_time_limit_of_make_is_the_only_clock(limit: int) -> None:
    """Longer than the registered one too, and with the same end in the single and the batched environment."""
    single = gymnasium.make("icrl/DarkRoomClassic-v0", max_episode_steps=limit)
    batched = gymnasium.make_vec("icrl/DarkRoomClassic-v0", 2, max_episode_steps=limit)
    single.reset(seed=0), batched.reset(seed=0)
    for time in range(1, limit + 1):
        assert single.step(0)[3] == (time == limit)
        assert batched.step(np.zeros(2, int))[3].tolist() == [time == limit] * 2


def test_reset_mask_leaves_other_streams_alone() -> None:
    env = rooms(3, goal=(0, 0), max_episode_steps=5)
    env.reset(seed=0)
    env.step(np.array([2, 2, 2]))
    obs, infos = env.reset(options={"reset_mask": np.array([False, True, False])})
    assert obs.tolist() == [5, 4, 5]
    assert infos["_timestep"].tolist() == [False, True, False]
    assert env.step(np.array([0, 0, 0]))[4]["timestep"].tolist() == [2, 1, 2]


def test_returned_arrays_are_the_callers() -> None:
    """Writing to them does not move the agent."""
    env, same = rooms(2, random_start=True), rooms(2, random_start=True)
    obs, infos = env.reset(seed=0)
    same.reset(seed=0)
    for actions in np.random.default_rng(0).integers(5, size=(20, 2)):
        obs[:], infos["timestep"][:] = 0, 9
        obs, rewards, terminated, truncated, infos = env.step(actions)
        assert data_equivalence((obs, rewards, terminated, truncated, infos), same.step(actions), exact=True)


@pytest.mark.parametrize("action", [5, -1, 1.5, "up", None])
def test_bad_actions_are_refused(action: Any) -> None:
    single, batched = room(), rooms(2)
    single.reset(seed=0), batched.reset(seed=0)
    with pytest.raises(InvalidAction, match="integer >= 0 and < 5"):
        single.step(action)
    with pytest.raises(InvalidAction, match="2 integers >= 0 and < 5"):
        batched.step(np.array([0, action]))


def test_wrong_number_of_actions_is_refused() -> None:
    batched = rooms(2)
    batched.reset(seed=0)
    for actions in (np.zeros(3, int), np.int64(0), np.zeros((2, 1), int)):
        with pytest.raises(InvalidAction, match="must be 2 integers"):
            batched.step(actions)


@pytest.mark.parametrize(
    "mask", [[True, False], np.array([1, 0]), np.array([True]), np.array([False, False]), None, np.array(True)]
)
def test_bad_reset_mask_is_refused(mask: Any) -> None:
    env = rooms(2)
    env.reset(seed=0)
    with pytest.raises(ValueError, match="reset_mask.*2 bools"):
        env.reset(options={"reset_mask": mask})


def test_bad_seeds_are_refused() -> None:
    for env in (room(), rooms(2)):
        with pytest.raises(Error, match="greater or equal to zero"):
            env.reset(seed=-1)
    with pytest.raises(ValueError, match="num_envs=2"):
        rooms(2).reset(seed=[1])


def test_order_of_calls_is_enforced() -> None:
    single, batched = room(max_episode_steps=1, render_mode="rgb_array"), rooms(2, render_mode="rgb_array")
    for call in (
        lambda: single.step(np.int64(0)),
        single.render,
        lambda: batched.step(np.zeros(2, int)),
        batched.render,
    ):
        with pytest.raises(ResetNeeded):
            call()
    with pytest.raises(ResetNeeded, match="every stream"):
        batched.reset(options={"reset_mask": np.array([True, False])})
    single.reset(seed=0)
    single.step(np.int64(0))
    with pytest.raises(ResetNeeded, match="ended"):
        single.step(np.int64(0))


@pytest.mark.parametrize("name", WORLDS)
def test_stream_can_be_set_to_where_another_stands(name: str) -> None:
    first, second = (SingleEnv(WORLDS[name]()) for _ in range(2))
    num_actions = WORLDS[name]().spec.num_actions
    rng = np.random.default_rng(2)
    first.reset(seed=9)
    for action in rng.integers(num_actions, size=9):
        if any(first.step(action)[2:4]):
            first.reset()
    second.stream = first.stream
    assert second.stream == first.stream
    for action in rng.integers(num_actions, size=60):
        assert (shown := first.step(action)) == second.step(action)
        if shown[2] or shown[3]:
            assert first.reset() == second.reset()


def test_a_world_from_its_options_keeps_its_clock() -> None:
    """And its ends: a bandit's only pull is the end of the task, not just of the time."""
    env = singles_of(load_config(["env=bandit"]).env, 1)[0]
    env.reset(seed=0)
    assert env.step(np.int64(0))[2:4] == (True, True)
    env = singles_of(load_config(["env.max_episode_steps=2"]).env, 1)[0]
    env.reset(seed=0)
    assert [env.step(np.int64(0))[3] for _ in range(2)] == [False, True]
