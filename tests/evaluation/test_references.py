"""Which references a world has, and that what is exact and what is played agree."""

import pytest

from icrl.config.compose import load_config
from icrl.envs import make_env
from icrl.envs.core import TensorEnv
from icrl.evaluation.in_context import play_episodes
from icrl.evaluation.references import chance, exact_references, references_of
from icrl.sources.bandit_policies import UCB1, ThompsonSampling
from icrl.sources.explorers import CoveringPlan, PersistentWalk, UniformWalk
from icrl.sources.room_searchers import PermutedSearcher, RoomSearcher

EXPLORERS = {
    "searcher": RoomSearcher,
    "covering plan": CoveringPlan,
    "persistent walk with goal memory": PersistentWalk,
    "uniform walk with goal memory": UniformWalk,
}
POLICIES = {
    "dark_room": EXPLORERS,
    "dark_room_classic": EXPLORERS,
    "dark_room_permuted": {"searcher": PermutedSearcher},
    "dark_key_to_door": {"searcher": RoomSearcher},
    "bandit": {"Thompson sampling": ThompsonSampling, "UCB1": UCB1},
    "bandit_gaussian": {"Thompson sampling": ThompsonSampling, "UCB1": UCB1},
    "gymnasium": {},
}
WORLDS = {"bandit": ["env.num_arms=3"], "bandit_gaussian": ["env.num_arms=3"], "gymnasium": []}


def env_of(name: str) -> TensorEnv:
    return make_env(load_config([f"env={name}", *WORLDS.get(name, ["env.size=3"])]).env)


@pytest.mark.parametrize("name", POLICIES)
def test_each_world_has_its_own(name: str) -> None:
    config = load_config([f"env={name}"])
    found = references_of(make_env(config.env), config)
    assert {name: type(policy) for name, policy in found.items()} == POLICIES[name]


def test_where_starts_vary_there_is_no_plan() -> None:
    config = load_config(["env=dark_room", "env.random_start=true"])
    assert list(references_of(make_env(config.env), config)) == ["searcher"]


@pytest.mark.parametrize("name", POLICIES)
def test_chance_comes_to_what_is_exact(name: str) -> None:
    config, env = load_config([]), env_of(name)
    tasks = env.all_tasks()[:4]
    exact = exact_references(env, tasks)
    assert list(exact) == ["random", "optimum"]
    num_streams = 15 if name == "gymnasium" else 300  # there each is an environment of its own
    found, _ = play_episodes(chance(env, config), env, tasks, num_streams, 5, seed=0)
    for values, expected in (
        (found.returns, exact["random"].episode_return),
        (found.success, exact["random"].success),
        (found.steps_to_goal, exact["random"].steps_to_goal),
    ):
        error = 5 * values.std((1, 2)) / (5 * num_streams) ** 0.5 + 1e-9
        assert (abs(values.mean((1, 2)) - expected.numpy()) < error).all()
    assert (exact["optimum"].episode_return > exact["random"].episode_return).all()


def test_without_a_planner_chance_is_played(monkeypatch: pytest.MonkeyPatch) -> None:
    config = load_config(["env=gymnasium"])
    env = make_env(config.env)
    monkeypatch.setattr(env, "has_planner", False)
    assert exact_references(env, env.all_tasks()) == {}
    assert list(references_of(env, config)) == ["random"]


def test_thompson_sampling_knows_how_rewards_are_spread() -> None:
    """A coin's are Beta, a gaussian arm's normal: only the latter may leave [0, 1]."""
    for name, deviation in (("bandit", None), ("bandit_gaussian", 0.7)):
        config = load_config([f"env={name}", "env.deviation=0.7"])
        policies = references_of(make_env(config.env), config)
        assert vars(policies["Thompson sampling"])["_deviation"] == deviation
        assert vars(policies["UCB1"])["_deviation"] == (deviation or 0.5)
