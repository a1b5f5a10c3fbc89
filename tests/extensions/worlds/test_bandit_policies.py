"""Bandit policies against scalar loops, and against known distributions."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from probes import step_of as fresh

from icrl.app.compose import load_config
from icrl.contracts import ConfigError, Step
from icrl.envs import make_env
from icrl.evaluation.in_context import play_episodes
from icrl.evaluation.references import references_of
from icrl.extensions.worlds.indices import GittinsIndex, TunedUCB1, gittins_indices
from icrl.extensions.worlds.learners import UCB1, LinearThompsonSampling, LinUCB, Pulls, ThompsonSampling
from icrl.randomness import Noise, stream_seeds
from icrl.spaces import discrete_spec

VALUES = (-1.0, 0.0, 0.5, 2.0)
SPEC = discrete_spec(1, 3, VALUES, 0, 4, success="best_action")
COIN = discrete_spec(1, 3, (0.0, 1.0), 0, 1, success="best_action")


def step_of(reward: int, timestep: int, ended: bool) -> Step:
    nothing = torch.zeros(1, dtype=torch.long)
    over = torch.tensor([ended])
    return Step(nothing, SPEC.reward_of(nothing + reward), over, over, nothing, nothing + timestep, nothing)


@settings(max_examples=20)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.floats(0.1, 2.0))
def test_ucb1_equals_a_scalar_loop(rewards: list[int], deviation: float) -> None:
    """Over episodes of four pulls; the reward of the first step, before any pull, does not count."""
    policy = UCB1(SPEC, deviation)
    carry, step = policy.initial_carry(1), step_of(3, 0, ended=False)
    paid: list[list[float]] = [[], [], []]
    for t, reward in enumerate(rewards):
        action, carry = policy.act(carry, step, torch.zeros(1))
        doubt = 2 * deviation * math.sqrt(2 * math.log(max(t, 1)))
        bounds = [sum(p) / len(p) + doubt / math.sqrt(len(p)) if p else math.inf for p in paid]
        best = max(bounds)
        assert bounds[int(action)] == pytest.approx(best, rel=1e-5)
        assert not math.isinf(best) or int(action) == bounds.index(best)
        paid[int(action)].append(VALUES[reward])
        step = step_of(reward, (t + 1) % 4, ended=(t + 1) % 4 == 0)
    assert carry.count.sum() == len(rewards) - 1


@pytest.mark.parametrize("count", [[0, 0, 0], [3, 10, 1], [200, 190, 5]])
@pytest.mark.parametrize(("deviation", "first"), [(None, None), (0.5, None), (0.5, 0.3)])
def test_thompson_sampling_draws_from_the_posterior(
    count: list[int], deviation: float | None, first: float | None
) -> None:
    """Beta for wins and losses; for normal rewards from precisions: 1 of the prior and 1 / deviation^2 of each pull.
    The mean of the first arm may be known."""
    size, rng = 40_000, np.random.default_rng(0)
    n, total = np.array(count), np.array(count) // 2 + 1 * (np.array(count) > 0)
    if deviation is None:
        means = rng.beta(1 + total, 1 + n - total, (size, 3))
    else:
        precision = 1 + n / deviation**2
        means = rng.normal(total / deviation**2 / precision, precision**-0.5, (size, 3))
    if first is not None:
        means[:, 0] = first
    expected = np.bincount(means.argmax(1), minlength=3) / size
    policy, known = (
        ThompsonSampling(COIN if deviation is None else SPEC, deviation, first),
        known_pulls(n[None], total[None], size),
    )
    action, _ = policy.act(known, fresh(torch.zeros(size).long()), Noise(stream_seeds(0, size)).draw(1)[0])
    np.testing.assert_allclose(action.bincount(minlength=3) / size, expected, atol=0.015)


def known_pulls(count: np.ndarray, total: np.ndarray, num_streams: int) -> Pulls:
    """Statistics `[C, A]` of every stream, before a first step."""
    nothing = torch.zeros(num_streams).long()
    counted = (torch.tensor(values).float().expand(num_streams, -1, -1) for values in (count, total))
    return Pulls(*counted, nothing, nothing)


# ---- contexts and features


@pytest.mark.parametrize("kind", [UCB1, ThompsonSampling])
def test_a_context_is_a_bandit_of_its_own(kind: type) -> None:
    """The action for a context is that of a plain bandit which has seen the pulls of this context alone."""
    rng, spec = np.random.default_rng(0), discrete_spec(4, 3, VALUES, 0, 1, success="best_action")
    count = rng.integers(0, 5, (4, 3))
    total = rng.normal(size=(4, 3)) * (count > 0)
    noise, contexts = Noise(stream_seeds(0, 40)).draw(1)[0], torch.arange(40) % 4
    found, _ = kind(spec, 0.5).act(known_pulls(count, total, 40), fresh(contexts), noise)
    for context in range(4):
        plain = known_pulls(count[context : context + 1], total[context : context + 1], 40)
        expected, _ = kind(SPEC, 0.5).act(plain, fresh(torch.zeros(40).long()), noise)
        assert torch.equal(found[contexts == context], expected[contexts == context])


def test_pulls_are_counted_in_the_context_that_was_shown() -> None:
    env = make_env(load_config(["env=bandit_contextual", "env.num_tasks=20"]).env)
    policy, (state, step) = UCB1(env.spec, 0.5), env.reset(env.all_tasks()[:6], stream_seeds(0, 6))
    carry, count, total = policy.initial_carry(6), np.zeros((6, 4, 5)), np.zeros((6, 4, 5))
    for _ in range(30):
        shown = step.obs
        action, carry = policy.act(carry, step, torch.zeros(6))
        np.testing.assert_array_equal(carry.count, count)
        np.testing.assert_array_equal(carry.total, total)
        state, step = env.step(state, action)
        np.add.at(count, (range(6), shown, action), 1)
        np.add.at(total, (range(6), shown, action), step.reward)


def linear(num_contexts: int) -> tuple[torch.Tensor, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Features `[C, 3, 2]`, pulls and rewards of each arm, and posterior mean and covariance by ridge regression."""
    rng, deviation = np.random.default_rng(1), 0.5
    features = rng.normal(size=(num_contexts, 3, 2))
    count, total = rng.integers(0, 4, features.shape[:2]), np.zeros(features.shape[:2])
    precision, summed = np.eye(2), np.zeros(2)
    for context, arm in np.ndindex(count.shape):
        for _ in range(count[context, arm]):
            reward, phi = rng.normal(), features[context, arm]
            total[context, arm] += reward
            precision += np.outer(phi, phi) / deviation**2
            summed += reward * phi / deviation**2
    return torch.tensor(features), count, total, np.linalg.solve(precision, summed), np.linalg.inv(precision)


@pytest.mark.parametrize("num_contexts", [1, 3])
def test_linucb_equals_ridge_regression_pull_by_pull(num_contexts: int) -> None:
    features, count, total, mean, covariance = linear(num_contexts)
    spec = discrete_spec(num_contexts, 3, VALUES, 0, 1, success="best_action")
    pulls, contexts = known_pulls(count, total, num_contexts), torch.arange(num_contexts)
    scores = LinUCB(spec, 0.5, features).scores(pulls.count, pulls.total, contexts, torch.zeros(num_contexts))
    alpha = 1 + math.sqrt(math.log(20) / 2)
    for context, arm in np.ndindex(count.shape):
        phi = features[context, arm].numpy()
        expected = mean @ phi + alpha * math.sqrt(phi @ covariance @ phi)
        assert float(scores[context, arm]) == pytest.approx(expected, rel=1e-4)


def test_linear_thompson_sampling_draws_from_the_posterior() -> None:
    size, rng = 40_000, np.random.default_rng(0)
    features, count, total, mean, covariance = linear(2)
    policy = LinearThompsonSampling(discrete_spec(2, 3, VALUES, 0, 1, success="best_action"), 0.5, features)
    for context in range(2):
        shown = torch.full((size,), context)
        noise = Noise(stream_seeds(0, size)).draw(1)[0]
        action, _ = policy.act(known_pulls(count, total, size), fresh(shown), noise)
        theta = rng.multivariate_normal(mean, covariance, size)
        expected = np.bincount((theta @ features[context].numpy().T).argmax(1), minlength=3) / size
        np.testing.assert_allclose(action.bincount(minlength=3) / size, expected, atol=0.015)


def test_features_make_learning_faster() -> None:
    """With 20 arms and 2 features, 30 pulls are enough for policies that know the features, not for others."""
    env = make_env(load_config(["env=bandit_linear", "env.num_arms=20"]).env)
    tasks = env.all_tasks()[:60]
    policies = [*(kind(env.spec, 0.5, env.features) for kind in (LinearThompsonSampling, LinUCB))]
    policies += [ThompsonSampling(env.spec, 0.5)]
    drawn, bound, plain = (play_episodes(one, env, tasks, 2, 30, seed=0)[0].returns[..., -5:] for one in policies)
    best = env.means[:60, 0].amax(1).mean()
    assert min(drawn.mean(), bound.mean()) > 0.9 * best > plain.mean() + 0.2


# ---- policies that know the length of a life, against published indices and total rewards

# Duan et al., 2016, table 1: total rewards over 1000 bandits, by arms and pulls.
PUBLISHED = {
    (10, 100): {"Thompson sampling": 76.7, "tuned UCB1": 82.4, "Gittins index": 82.8},
    (50, 500): {"tuned UCB1": 457.6, "Gittins index": 463.7},
}


def test_indices_are_those_of_the_literature() -> None:
    """Gittins, Glazebrook and Weber (2011), table 8.4: discount 0.9, which is that of a life of 20 pulls, by successes
    and failures."""
    expected = [[0.7029, 0.5001, 0.3796], [0.8001, 0.6346, 0.5163], [0.8452, 0.7072, 0.6010]]
    for found in (gittins_indices(150, 0.9), GittinsIndex(COIN, 20)._indices):
        np.testing.assert_allclose(found[:3, :3], expected, atol=3e-4)


def test_tuned_ucb1_by_its_formula() -> None:
    """Before pull 14, with 0, 3 and 10 pulls of the arms."""
    pulls = known_pulls(np.array([[0, 3, 10]]), np.array([[0, 2, 4]]), 1)
    found = TunedUCB1(COIN, None).scores(pulls.count, pulls.total, pulls.context, torch.zeros(1))[0]
    expected = [mean + 0.2 * (2 * math.log(14) / n) ** 0.5 for mean, n in ((1 / 2, 2), (3 / 5, 5), (5 / 12, 12))]
    assert found.tolist() == pytest.approx(expected)


def test_a_life_of_one_pull_is_worth_its_mean() -> None:
    indices = GittinsIndex(COIN, 1)._indices[[0, 0, 1], [0, 1, 0]]
    np.testing.assert_allclose(indices, [1 / 2, 1 / 3, 2 / 3], atol=2e-4)


@pytest.mark.parametrize(("arms", "pulls"), [(10, 100), pytest.param(50, 500, marks=pytest.mark.long)])
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
        make_env(load_config(["env=bandit_gaussian", f"env.first_mean={mean}", "env.num_tasks=50"]).env).means[:, 0]
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
    env = make_env(load_config(["env=bandit_gaussian", "env.first_mean=0.5"]).env)
    thompson = references_of(env)["Thompson sampling"]
    totals = play_episodes(thompson, env, env.all_tasks()[:1000], 1, 100, seed=0)[0].returns.sum((1, 2))
    assert totals.mean() == pytest.approx(123.3, abs=4 * totals.std() * (2 / 1000) ** 0.5)
