"""Gymnasium environments of the polyhedra game against Gymnasium's checker and vector environment, and the rules."""

import gymnasium
import numpy as np
import pytest
from gymnasium.error import InvalidAction, ResetNeeded
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import iterate

from icrl.extensions.as_gymnasium.environments import stream_seeds
from icrl.extensions.point_game.fixed_players import AGENTS, HOSTS
from icrl.extensions.point_game.gymnasium import BatchedPointGame, make_batched, make_single
from icrl.extensions.point_game.rollout import PointGame, PointGameOptions, play
from icrl.extensions.point_game.rules import canonical, rescale, subset_of

HOST, AGENT = "icrl/PointGameHost-v0", "icrl/PointGameAgent-v0"
SMALL = {"dimension": 3, "max_num_points": 5, "max_value": 4, "reposition": False, "scale_observation": True}
PLAYED = {**SMALL, "role": "host", "opponent": "random"}


@pytest.mark.parametrize(
    ("env_id", "opponent", "legal"),
    [(HOST, "random", True), (HOST, "last", False), (AGENT, "spivakovsky", True), (AGENT, "weak_spivakovsky", False)],
)
def test_native_vector_equals_gymnasiums_own(env_id: str, opponent: str, *, legal: bool) -> None:
    """Every value, type and info of many games, with resets by seed, by list of seeds and by mask in between."""
    check_env(gymnasium.make(f"icrl.envs:{env_id}", opponent=opponent, scale_observation=legal).unwrapped)
    given = {**SMALL, "opponent": opponent, "max_episode_steps": 4, "scale_observation": legal}
    same_step = {"autoreset_mode": AutoresetMode.SAME_STEP}
    native = gymnasium.make_vec(env_id, 5, **given)
    sync = gymnasium.make_vec(env_id, 5, vectorization_mode="sync", vector_kwargs=same_step, **given)
    assert isinstance(native, BatchedPointGame) and native.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert native.observation_space == sync.observation_space and native.action_space == sync.action_space
    assert gymnasium.spec(env_id).max_episode_steps == 100
    rng = np.random.default_rng(0)
    resets = {
        0: {"seed": 7},
        5: {},
        8: {"options": {"reset_mask": np.array([True, False, True, False, False])}},
        11: {"seed": 3, "options": {"reset_mask": np.array([False, True, True, False, False])}},
        15: {"seed": [4, None, 2**70, None, 0]},
    }
    mask = np.zeros((5, 1))
    for time in range(20):
        if time in resets:
            obs, infos = native.reset(**resets[time])
            assert data_equivalence((obs, infos), sync.reset(**resets[time]), exact=True), time
            mask = native._mask(native.state)
        some = [rng.choice(row.nonzero()[0]) if legal and row.any() else 0 for row in mask]
        actions = np.array(some) if legal else rng.integers(native.single_action_space.n, size=5)
        ours, theirs = native.step(actions), sync.step(actions)
        assert data_equivalence(ours, theirs, exact=True), f"{time}: {ours} {theirs}"
        assert native.observation_space.contains(ours[0])
        mask = ours[4]["action_mask"]


@pytest.mark.parametrize(
    ("role", "opponent", "scale"),
    [("agent", "weak_spivakovsky", True), ("agent", "weak_spivakovsky", False), ("host", "random", True)],
)
def test_a_side_plays_the_recorded_games(role: str, opponent: str, *, scale: bool) -> None:
    """Against the same opponent and with the same actions the learner sees what the fused rollout recorded, and may
    write to it."""
    options = {"dimension": 3, "max_num_points": 5, "max_value": 4, "max_episode_steps": 4, "reposition": True}
    game, host, is_agent = PointGame(PointGameOptions(**options)), HOSTS["weak_spivakovsky"], role == "agent"
    record, _ = play(game, host, AGENTS["random"], game.ask(host, game.reset(stream_seeds(range(11, 17)))), 25)
    env = make_batched(6, role=role, opponent=opponent, scale_observation=scale, **options)

    def shown(points, coords):
        points = canonical(points)
        seen = (rescale(points).float() if scale else points).numpy()
        return {"coords": coords.numpy().astype(np.int8), "points": seen} if is_agent else seen

    obs, infos = env.reset(seed=11)
    for points, subset, axis, after, then, ended, cut, *_ in zip(*record, strict=True):
        coords = subset_of(subset, 3)
        assert data_equivalence(obs, shown(points, coords), exact=True)
        assert infos["action_mask"].tolist() == (coords.tolist() if is_agent else [[1] * 4] * 6)
        for array in (*(obs.values() if is_agent else (obs,)), infos["action_mask"], infos["timestep"]):
            array[:] = 1
        obs, rewards, terminated, truncated, infos = env.step((axis if is_agent else subset).numpy())
        assert terminated.tolist() == ended.tolist() and truncated.tolist() == cut.tolist()
        assert rewards.tolist() == ((-1 if is_agent else 1) * ended.double()).tolist()
        final = [*iterate(env.observation_space, shown(after, subset_of(then, 3) & ~ended[:, None]))]
        for stream in (terminated | truncated).nonzero()[0]:
            assert data_equivalence(infos["final_obs"][stream], final[stream], exact=True)
    assert record.truncated.any() and record.terminated.any()


def test_an_illegal_answer_loses_and_no_step_follows_an_end() -> None:
    env = gymnasium.make(AGENT, opponent="random_pair")
    obs, info = env.reset(seed=0)
    after, *end, info = env.step(int((info["action_mask"] == 0).nonzero()[0][0]))
    assert np.array_equal(after["points"], obs["points"]) and end == [-1.0, True, False]
    short = make_single(**{**PLAYED, "role": "agent", "opponent": "all_coordinates"}, max_episode_steps=1)
    short.reset(seed=1)
    assert short.step(0)[2:4] == (False, True)
    for ended in (env.unwrapped, short):
        with pytest.raises(ResetNeeded):
            ended.step(0)


@pytest.mark.parametrize("make", [make_single, make_batched])
def test_bad_options_are_refused(make) -> None:
    for given, named in (
        ({"role": "both"}, "role='both'.*'host' or 'agent'"),
        ({"opponent": "zeillinger"}, "opponent='zeillinger'.*random, first, last"),
        ({"role": "agent"}, "opponent='random'.*random_pair, random_subset"),
        ({"dimension": 1}, "dimension=1.* 2"),
        ({"colour": 1}, "colour=1"),
    ):
        with pytest.raises(ValueError, match=named):
            make(**{**PLAYED, **given})
    for name in ("max_value", "scale_observation"):
        with pytest.raises(ValueError, match=f"^{name}: .*required"):
            make(**{key: value for key, value in PLAYED.items() if key != name})


def test_bad_actions_and_resets_are_refused() -> None:
    for action in (4, -1, 1.5, "up", None):
        for env, bad in ((make_single(**PLAYED), action), (make_batched(**PLAYED), np.array([action]))):
            with pytest.raises(ResetNeeded):
                env.step(bad)
            env.reset(seed=0)
            with pytest.raises(InvalidAction, match="1 integers >= 0 and < 4"):
                env.step(bad)
    env, mask = make_batched(2, **PLAYED), np.array([True, False])
    with pytest.raises(ResetNeeded, match="every stream"):
        env.reset(options={"reset_mask": mask})
    env.reset(seed=0)
    for given in ({"options": {"reset_mask": mask[:1]}}, {"seed": [1]}):
        with pytest.raises(ValueError, match="num_envs=2"):
            env.reset(**given)
    with pytest.raises(ValueError, match="num_envs=0: must be greater than 0"):
        make_batched(num_envs=0, **PLAYED)
