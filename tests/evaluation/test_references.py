"""References: which ones a world has, exact against played ones, and coverage against a walk by hand."""

from unittest.mock import Mock

import numpy as np
import pytest
import torch

from icrl.config.compose import load_config
from icrl.envs import make_env
from icrl.envs.rooms import DarkRoom
from icrl.evaluation.in_context import play_episodes
from icrl.evaluation.references import NUM_EPISODES, Wiped, chance, coverage_of, exact_references, references_of
from icrl.evaluation.trained import policy_of
from icrl.nn.gpt import GPT

ROOM = ["searcher", "covering plan", "persistent walk with goal memory", "uniform walk with goal memory"]
BANDIT = ["Thompson sampling", "UCB1"]
REFERENCES = {"dark_room": ROOM, "dark_room_classic": ROOM, "bandit": BANDIT, "bandit_gaussian": BANDIT}
REFERENCES |= {"dark_room_permuted": ["searcher"], "dark_key_to_door": ["searcher"], "gymnasium": []}
REFERENCES |= {"bandit_linear": ["Thompson sampling", "LinUCB"], "bandit_contextual": BANDIT}
REFERENCES |= {"garnet": ["PSRL"], "anymdp": ["PSRL"]}
WORLDS = {"bandit": ["env.num_arms=3"], "bandit_gaussian": ["env.num_arms=3"], "gymnasium": []}
WORLDS |= {"bandit_linear": [], "bandit_contextual": [], "garnet": [], "anymdp": ["env.num_states=6"]}


@pytest.mark.parametrize("name", REFERENCES)
def test_each_world_has_its_own(name: str) -> None:
    config = load_config([f"env={name}", *WORLDS.get(name, ["env.size=3", "env.max_episode_steps=6"])])
    assert list(references_of(make_env(config.env), config)) == REFERENCES[name]


def test_without_one_start_there_is_no_plan_and_without_a_planner_chance_is_played(monkeypatch) -> None:
    config = load_config(["env=dark_room", "env.random_start=true"])
    assert list(references_of(make_env(config.env), config)) == ["searcher"]
    config = load_config(["env=gymnasium"])
    env = make_env(config.env)
    monkeypatch.setattr(env, "has_planner", False)
    assert exact_references(env, env.all_tasks()) == {} and list(references_of(env, config)) == ["random"]


@pytest.mark.parametrize(("name", "deviation"), [("bandit", None), ("bandit_gaussian", 0.7)])
def test_thompson_sampling_knows_the_distribution_of_rewards(name: str, deviation: float | None) -> None:
    """Those of a coin are Beta, of a gaussian arm normal: only the latter may leave [0, 1]."""
    config = load_config([f"env={name}", "env.deviation=0.7"])
    policies = references_of(make_env(config.env), config)
    assert vars(policies["Thompson sampling"])["_deviation"] == deviation
    assert vars(policies["UCB1"])["_deviation"] == (deviation or 0.5)


@pytest.mark.parametrize("name", [name for name in REFERENCES if name != "dark_room_classic"])
def test_played_chance_agrees_with_the_exact_one(name: str) -> None:
    config = load_config([f"env={name}", *WORLDS.get(name, ["env.size=3"])])
    env = make_env(config.env)
    tasks = env.all_tasks()[:4]
    exact = exact_references(env, tasks)
    assert list(exact) == ["random", "optimum"]
    num_streams = 15 if name == "gymnasium" else 300  # there each is an environment of its own
    found, _ = play_episodes(chance(env, config), env, tasks, num_streams, 5, seed=0)
    fields = {"returns": "episode_return", "success": "success", "steps_to_goal": "steps_to_goal"}
    for measure, field in fields.items():
        values, expected = getattr(found, measure), getattr(exact["random"], field).numpy()
        error = 5 * values.std((1, 2)) / (5 * num_streams) ** 0.5 + 1e-9
        assert (abs(values.mean((1, 2)) - expected) < error).all()
    assert (exact["optimum"].episode_return > exact["random"].episode_return).all()


# ---- coverage


@pytest.mark.parametrize("terminate", [True, False])
def test_coverage_by_hand(terminate: bool) -> None:
    """From the centre: up and right; left and stay; and so on again. The other stream never leaves the centre."""
    options = ["env.size=3", "env.max_episode_steps=2", f"env.terminate_on_goal={str(terminate).lower()}"]
    env = DarkRoom(load_config(options).env)
    actions = torch.tensor([[1, 2, 4, 0], [0, 0, 0, 0]])
    walk = Mock(initial_carry=lambda _: 0, act=lambda taken, step, noise: (actions[:, taken % 4], taken + 1))
    found = coverage_of(walk, env, 2, seed=0)
    assert found.shape == (1, 2, NUM_EPISODES)
    assert found[0, 0].tolist() == pytest.approx([2 / 8, 3 / 8, 3 / 8, 3 / 8, 3 / 8, 3 / 8])
    assert found[0, 1].tolist() == [0] * NUM_EPISODES  # the start is no goal


def test_coverage_of_a_model_with_and_without_its_context() -> None:
    """Equal in the first episode, where nothing was wiped. Coverage grows, and is a function of the seed."""
    small = ("model.embed_dim=8", "model.num_layers=1", "model.num_heads=1", "model.ff_dim=8", "model.context_len=6")
    config = load_config(["env.size=3", "env.max_episode_steps=4", *small])
    env = DarkRoom(config.env)
    policy = policy_of(config, GPT(config.model, env.spec))
    kept, wiped, again = (coverage_of(player, env, 20, seed=0) for player in (policy, Wiped(policy), policy))
    np.testing.assert_array_equal(kept[..., 0], wiped[..., 0])
    np.testing.assert_array_equal(kept, again)
    for shares in (kept, wiped):
        assert (np.diff(shares, axis=2) >= 0).all() and (shares <= 1).all() and shares.mean() > 0.2
