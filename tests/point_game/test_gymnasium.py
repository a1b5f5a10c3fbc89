"""The polyhedra game behind Gymnasium: its own checker, its own vector environment, and the rules underneath."""

import re
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.error import InvalidAction, ResetNeeded
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import icrl.envs
from icrl.envs.gym.as_gymnasium import stream_seeds
from icrl.point_game.fixed_players import AGENTS, HOSTS
from icrl.point_game.gymnasium import BatchedPointGame, SinglePointGame, make_batched, make_single
from icrl.point_game.rollout import MAX_COORDINATE, PointGame, PointGameOptions, play
from icrl.point_game.rules import canonical, rescale, subset_of

HOST, AGENT = "icrl/PointGameHost-v0", "icrl/PointGameAgent-v0"
SAME_STEP = {"autoreset_mode": AutoresetMode.SAME_STEP}
SMALL = {"dimension": 3, "max_num_points": 5, "max_value": 4, "reposition": False, "scale_observation": True}
SIDES = [(HOST, name) for name in AGENTS] + [(AGENT, name) for name in HOSTS]


@pytest.mark.parametrize(("env_id", "opponent"), SIDES)
@pytest.mark.parametrize("scale_observation", [True, False])
def test_check_env_has_no_complaint(env_id: str, opponent: str, *, scale_observation: bool) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = gymnasium.make(f"icrl.envs:{env_id}", opponent=opponent, scale_observation=scale_observation)
        check_env(env.unwrapped)


def test_examples_of_the_documentation_run() -> None:
    page = Path(icrl.envs.__file__).parents[3] / "docs" / "point_game.md"
    examples = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    assert len(examples) == 2
    for example in examples:
        exec(example, {})


def test_what_is_registered() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        host, agent = gymnasium.make(f"icrl.envs:{HOST}"), gymnasium.make(f"icrl.envs:{AGENT}")
        batched = gymnasium.make_vec(f"icrl.envs:{HOST}", num_envs=2)
    assert isinstance(host.unwrapped, SinglePointGame) and isinstance(batched, BatchedPointGame)
    assert host.spec is not None and host.spec.max_episode_steps == 100
    points = Box(-1.0, 1.0, (20, 3), np.float32)
    assert host.observation_space == points and host.action_space == Discrete(4)
    assert agent.observation_space == Dict({"points": points, "coords": MultiBinary(3)})
    assert agent.action_space == Discrete(3)
    assert batched.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    exact = make_single(role="host", opponent="last", **{**SMALL, "scale_observation": False})
    assert exact.observation_space == Box(-1, 3 * MAX_COORDINATE, (5, 3), np.int64)


def masked(rng: np.random.Generator, mask: np.ndarray) -> np.ndarray:
    """A legal action for each row of `mask`; any where there is none."""
    return np.array([rng.choice(row.nonzero()[0]) if row.any() else 0 for row in mask])


@pytest.mark.parametrize(("env_id", "opponent"), SIDES)
@pytest.mark.parametrize("legal", [True, False])
def test_native_vector_equals_gymnasiums_own(env_id: str, opponent: str, *, legal: bool) -> None:
    """Every value, type and info of many games, with resets by seed, by list of seeds and by mask in between."""
    given = {**SMALL, "opponent": opponent, "max_episode_steps": 4, "scale_observation": legal}
    native = gymnasium.make_vec(env_id, 5, **given)
    sync = gymnasium.make_vec(env_id, 5, vectorization_mode="sync", vector_kwargs=SAME_STEP, **given)
    assert isinstance(native, BatchedPointGame) and isinstance(sync, SyncVectorEnv)
    assert native.observation_space == sync.observation_space and native.action_space == sync.action_space
    rng = np.random.default_rng(0)
    resets: dict[int, dict[str, Any]] = {
        0: {"seed": 7},
        8: {},
        16: {"options": {"reset_mask": np.array([True, False, True, False, False])}},
        20: {"seed": 3, "options": {"reset_mask": np.array([False, True, True, False, False])}},
        24: {"seed": [4, None, 2**70, None, 0]},
    }
    infos: dict[str, Any] = {}
    for time in range(32):
        if time in resets:
            obs, infos = native.reset(**resets[time])
            assert data_equivalence((obs, infos), sync.reset(**resets[time]), exact=True), time
            infos = native._infos(native._turn, np.ones(5, bool))
        num_actions = native.single_action_space.n
        actions = masked(rng, infos["action_mask"]) if legal else rng.integers(num_actions, size=5)
        ours, theirs = native.step(actions), sync.step(actions)
        assert data_equivalence(ours, theirs, exact=True), f"{time}: {ours} {theirs}"
        assert native.observation_space.contains(ours[0])
        infos = ours[4]


@pytest.mark.parametrize("scale_observation", [True, False])
def test_agent_side_plays_the_recorded_games(*, scale_observation: bool) -> None:
    """Against the same host and with the same answers the learner sees what the fused rollout recorded."""
    options = {"dimension": 3, "max_num_points": 5, "max_value": 4, "reposition": True}
    rules, seeds = PointGame(PointGameOptions(max_episode_steps=4, **options)), range(11, 17)
    turn = rules.ask(HOSTS["weak_spivakovsky"], rules.reset(stream_seeds(seeds)))
    record, _ = play(rules, HOSTS["weak_spivakovsky"], AGENTS["random"], turn, 25)
    side = {"opponent": "weak_spivakovsky", "scale_observation": scale_observation, **options}
    agent = make_batched(6, role="agent", max_episode_steps=4, **side)
    obs, infos = agent.reset(seed=11)

    def shown(points: torch.Tensor) -> np.ndarray:
        points = canonical(points)
        return (rescale(points).float() if scale_observation else points).numpy()

    for time in range(25):
        coords = subset_of(record.subset[time], 3).numpy()
        assert np.array_equal(obs["points"], shown(record.points[time]))
        assert np.array_equal(obs["coords"], coords) and np.array_equal(infos["action_mask"], coords)
        obs, rewards, terminated, truncated, infos = agent.step(record.axis[time].numpy())
        assert np.array_equal(terminated, record.terminated[time])
        assert np.array_equal(truncated, record.truncated[time])
        assert rewards.tolist() == [-1.0 if each else 0.0 for each in terminated]
        for stream in (terminated | truncated).nonzero()[0]:
            final = infos["final_obs"][stream]
            assert np.array_equal(final["points"], shown(record.next_points[time])[stream])
            expected = subset_of(record.next_subset[time], 3)[stream].numpy() & ~terminated[stream]
            assert np.array_equal(final["coords"], expected)
    assert record.truncated.any() and record.terminated.any()


def test_host_side_plays_the_recorded_games() -> None:
    options = {"dimension": 3, "max_num_points": 5, "max_value": 4, "reposition": False}
    rules = PointGame(PointGameOptions(max_episode_steps=4, **options))
    turn = rules.ask(HOSTS["random_subset"], rules.reset(stream_seeds(range(6))))
    record, _ = play(rules, HOSTS["random_subset"], AGENTS["random"], turn, 25)
    host = make_batched(6, role="host", max_episode_steps=4, opponent="random", scale_observation=False, **options)
    obs, infos = host.reset(seed=0)
    for time in range(25):
        assert np.array_equal(obs, canonical(record.points[time]).numpy())
        assert infos["action_mask"].tolist() == [[1] * 4] * 6
        obs, rewards, terminated, truncated, infos = host.step(record.subset[time].numpy())
        assert np.array_equal(terminated, record.terminated[time])
        assert np.array_equal(truncated, record.truncated[time])
        assert rewards.tolist() == [1.0 if each else 0.0 for each in terminated]


def test_an_illegal_answer_loses() -> None:
    env = gymnasium.make(AGENT, opponent="random_pair")
    obs, info = env.reset(seed=0)
    illegal = int((info["action_mask"] == 0).nonzero()[0][0])
    after, reward, terminated, truncated, info = env.step(illegal)
    assert np.array_equal(after["points"], obs["points"])
    assert (reward, terminated, truncated) == (-1.0, True, False)
    with pytest.raises(ResetNeeded):
        env.unwrapped.step(0)


def test_no_step_after_a_truncation() -> None:
    env = make_single(role="agent", opponent="all_coordinates", max_episode_steps=1, **{**SMALL, "dimension": 4})
    outcomes = set()
    for seed in range(20):
        env.reset(seed=seed)
        outcomes.add(env.step(0)[2:4])
        with pytest.raises(ResetNeeded):
            env.step(0)
    assert (False, True) in outcomes


def test_seeds_decide_and_a_reset_without_one_goes_on() -> None:
    env = make_single(role="host", opponent="random", **SMALL)
    first, second = env.reset(seed=5)[0], env.reset()[0]
    assert not np.array_equal(first, second)
    assert np.array_equal(env.reset(seed=5)[0], first) and np.array_equal(env.reset()[0], second)
    assert len({env.reset(seed=seed)[0].tobytes() for seed in range(20)}) > 15


def test_returned_arrays_are_the_callers() -> None:
    env, same = (make_batched(3, role="agent", opponent="random_subset", **SMALL) for _ in range(2))
    obs, infos = env.reset(seed=0)
    same.reset(seed=0)
    for _ in range(10):
        actions = infos["action_mask"].argmax(1)
        obs["points"][:], obs["coords"][:], infos["action_mask"][:], infos["timestep"][:] = 0, 1, 0, 9
        obs, *rest, infos = env.step(actions)
        assert data_equivalence((obs, *rest, infos), same.step(actions), exact=True)


@pytest.mark.parametrize("action", [4, -1, 1.5, "up", None])
def test_bad_actions_are_refused(action: Any) -> None:
    single, batched = (make(role="host", opponent="random", **SMALL) for make in (make_single, make_batched))
    for env, first in ((single, 0), (batched, np.array([0]))):
        with pytest.raises(ResetNeeded):
            env.step(first)
        env.reset(seed=0)
    with pytest.raises(InvalidAction, match="integer >= 0 and < 4"):
        single.step(action)
    with pytest.raises(InvalidAction, match="1 integers >= 0 and < 4"):
        batched.step(np.array([action]))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"role": "both"}, "role='both': must be host or agent"),
        ({"opponent": "zeillinger"}, "opponent='zeillinger': must be one of random, first, last"),
        ({"role": "agent"}, "opponent='random': must be one of random_pair, random_subset"),
        ({"dimension": 1}, "dimension=1: must be an int >= 2"),
        ({"max_episode_steps": 0}, "max_episode_steps=0: must be an int >= 1"),
    ],
)
def test_bad_options_are_refused(given: dict[str, Any], message: str) -> None:
    for make in (make_single, make_batched):
        with pytest.raises(ValueError, match=message):
            make(**{**SMALL, "role": "host", "opponent": "random", **given})
        with pytest.raises(TypeError, match="colour"):
            make(**{**SMALL, "role": "host", "opponent": "random", "colour": 1})


def test_bad_resets_are_refused() -> None:
    env = make_batched(2, role="host", opponent="random", **SMALL)
    with pytest.raises(ResetNeeded, match="every stream"):
        env.reset(options={"reset_mask": np.array([True, False])})
    env.reset(seed=0)
    for mask in ([1, 0], [True], [False, False], True):
        with pytest.raises(ValueError, match="2 bools"):
            env.reset(options={"reset_mask": np.array(mask)})
    with pytest.raises(ValueError, match="num_envs=2"):
        env.reset(seed=[1])
    with pytest.raises(ValueError, match="num_envs=0"):
        make_batched(0, role="host", opponent="random", **SMALL)
