"""References of the worlds of this extension: which ones each has, and exact against played ones."""

import pytest
from played_chance import check_chance

from icrl.app.compose import load_config
from icrl.envs import make_env
from icrl.evaluation.references import references_of

BANDIT = ["Thompson sampling", "UCB1"]
REFERENCES = {"bandit": BANDIT, "bandit_gaussian": BANDIT, "bandit_contextual": BANDIT}
REFERENCES |= {"bandit_linear": ["Thompson sampling", "LinUCB"], "dark_key_to_door": ["searcher"]}
REFERENCES |= {"garnet": ["PSRL"], "anymdp": ["PSRL"]}
WORLDS = {"bandit": ["env.num_arms=3"], "bandit_gaussian": ["env.num_arms=3"], "dark_key_to_door": ["env.size=3"]}
WORLDS["anymdp"] = ["env.num_states=6"]


@pytest.mark.parametrize("name", REFERENCES)
def test_each_world_has_its_own(name: str) -> None:
    config = load_config([f"env={name}", *WORLDS.get(name, [])])
    assert list(references_of(make_env(config.env))) == REFERENCES[name]


@pytest.mark.parametrize(("name", "deviation"), [("bandit", None), ("bandit_gaussian", 0.7)])
def test_thompson_sampling_knows_the_distribution_of_rewards(name: str, deviation: float | None) -> None:
    """Those of a coin are Beta, of a gaussian arm normal: only the latter may leave [0, 1]."""
    config = load_config([f"env={name}", "env.deviation=0.7"])
    policies = references_of(make_env(config.env))
    assert vars(policies["Thompson sampling"])["_deviation"] == deviation
    assert vars(policies["UCB1"])["_deviation"] == (deviation or 0.5)


@pytest.mark.parametrize("name", REFERENCES)
def test_played_chance_agrees_with_the_exact_one(name: str) -> None:
    config = load_config([f"env={name}", *WORLDS.get(name, [])])
    env = make_env(config.env)
    check_chance(env, env.all_tasks()[:4], 300)
