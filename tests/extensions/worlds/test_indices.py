"""Bandit policies that know the length of a life, against published indices and total rewards."""

import numpy as np
import pytest

from icrl.app.compose import load_config
from icrl.contracts import ConfigError
from icrl.envs import make_env
from icrl.evaluation.in_context import play_episodes
from icrl.evaluation.references import references_of
from icrl.extensions.worlds.indices import gittins_indices

# Duan et al., 2016, table 1: total rewards over 1000 bandits, by arms and pulls.
PUBLISHED = {
    (5, 100): {"Thompson sampling": 74.7, "tuned UCB1": 78.0, "Gittins index": 78.3},
    (10, 100): {"Thompson sampling": 76.7, "tuned UCB1": 82.4, "Gittins index": 82.8},
    (50, 500): {"tuned UCB1": 457.6, "Gittins index": 463.7},
}


def test_indices_are_those_of_the_literature() -> None:
    """Gittins, Glazebrook and Weber (2011), table 8.4: discount 0.9, by successes and failures."""
    expected = [[0.7029, 0.5001, 0.3796], [0.8001, 0.6346, 0.5163], [0.8452, 0.7072, 0.6010]]
    np.testing.assert_allclose(gittins_indices(150, 0.9)[:3, :3], expected, atol=2e-4)


@pytest.mark.parametrize(("arms", "pulls"), PUBLISHED)
def test_total_rewards_are_the_published_ones(arms: int, pulls: int) -> None:
    """Within four standard errors of the difference of two means over 1000 bandits."""
    env = make_env(load_config(["env=bandit", f"env.num_arms={arms}", f"env.horizon={pulls}"]).env)
    policies = references_of(env)
    assert list(policies) == ["Thompson sampling", "tuned UCB1", "Gittins index"]
    for name, published in PUBLISHED[arms, pulls].items():
        totals = play_episodes(policies[name], env, env.all_tasks()[:1000], 1, pulls, seed=0)[0].returns.sum((1, 2))
        assert totals.mean() == pytest.approx(published, abs=4 * totals.std() * (2 / 1000) ** 0.5), name


def test_a_life_that_is_longer_goes_on_with_means() -> None:
    env = make_env(load_config(["env=bandit", "env.num_arms=2", "env.horizon=5"]).env)
    gittins = references_of(env)["Gittins index"]
    assert play_episodes(gittins, env, env.all_tasks()[:200], 1, 60, seed=0)[0].success[..., -20:].mean() > 0.7


def test_the_first_arm_can_be_fixed() -> None:
    fixed, free = (
        make_env(load_config(["env=bandit_gaussian", f"env.first_mean={mean}"]).env).means[:, 0]
        for mean in (0.5, "null")
    )
    np.testing.assert_allclose(fixed[:, 0], 0.5, atol=1e-3)  # rewards are rounded
    np.testing.assert_allclose(fixed[:, 1:], free[:, 1:])
    for option in ("env.first_mean=0.5", "env.num_features=2"):
        with pytest.raises(ConfigError, match=r"needs env\.distribution=gaussian|give env\.distribution=gaussian"):
            load_config(["env=bandit", option])
    with pytest.raises(ConfigError, match=r"env\.horizon=100 needs env\.distribution=bernoulli"):
        load_config(["env=bandit_gaussian", "env.horizon=100"])


def test_thompson_sampling_with_a_fixed_arm_is_the_published_one() -> None:
    """Norman and Clune (2023): 123.3 in 100 pulls of ten gaussian arms with deviation 0.5. Within four standard errors
    of the difference of two means over 1000 bandits."""
    env = make_env(load_config(["env=bandit_gaussian", "env.first_mean=0.5", "env.deviation=0.5"]).env)
    thompson = references_of(env)["Thompson sampling"]
    totals = play_episodes(thompson, env, env.all_tasks()[:1000], 1, 100, seed=0)[0].returns.sum((1, 2))
    assert totals.mean() == pytest.approx(123.3, abs=4 * totals.std() * (2 / 1000) ** 0.5)
