"""Bandit policies against scalar loops, and against known distributions."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from probes import step_of as fresh

from icrl.config.compose import load_config
from icrl.contracts import Step
from icrl.envs import make_env
from icrl.evaluation.in_context import play_episodes
from icrl.randomness import Noise, stream_seeds
from icrl.sources.bandit_policies import UCB1, Pulls, ThompsonSampling
from icrl.spaces import discrete_spec

VALUES = (-1.0, 0.0, 0.5, 2.0)
SPEC = discrete_spec(1, 3, VALUES, 0, 4, success="best_action")
COIN = discrete_spec(1, 3, (0.0, 1.0), 0, 1, success="best_action")


def step_of(reward: int, timestep: int, ended: bool) -> Step:
    nothing = torch.zeros(1, dtype=torch.long)
    over = torch.tensor([ended])
    return Step(nothing, SPEC.reward_of(nothing + reward), over, over, nothing, nothing + timestep, nothing)


@settings(max_examples=40, deadline=None)
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
@pytest.mark.parametrize("deviation", [None, 0.5])
def test_thompson_sampling_draws_from_the_posterior(count: list[int], deviation: float | None) -> None:
    """Beta for wins and losses; for normal rewards from precisions: 1 of the prior and 1 / deviation^2 of each pull."""
    size, rng = 40_000, np.random.default_rng(0)
    n, total = np.array(count), np.array(count) // 2 + 1 * (np.array(count) > 0)
    if deviation is None:
        means = rng.beta(1 + total, 1 + n - total, (size, 3))
    else:
        precision = 1 + n / deviation**2
        means = rng.normal(total / deviation**2 / precision, precision**-0.5, (size, 3))
    expected = np.bincount(means.argmax(1), minlength=3) / size
    policy, nothing = ThompsonSampling(COIN if deviation is None else SPEC, deviation), torch.zeros(size).long()
    counted = (torch.tensor(values).float().expand(size, 1, -1) for values in (n, total))
    known = Pulls(*counted, nothing, nothing)
    action, _ = policy.act(known, fresh(nothing), Noise(stream_seeds(0, size)).draw(1)[0])
    np.testing.assert_allclose(action.bincount(minlength=3) / size, expected, atol=0.015)


@pytest.mark.parametrize("preset", ["bandit", "bandit_gaussian"])
def test_both_learn_and_thompson_sampling_learns_faster(preset: str) -> None:
    config = load_config([f"env={preset}", "env.num_arms=5"])
    env = make_env(config.env)
    tasks = env.all_tasks()[:60]
    policies = ThompsonSampling(env.spec, None if preset == "bandit" else 0.5), UCB1(env.spec, 0.5)
    thompson, ucb = (play_episodes(policy, env, tasks, 2, 200, seed=0)[0].success for policy in policies)
    assert thompson[..., -20:].mean() > ucb[..., -20:].mean() > 0.4 > thompson[..., :2].mean()
    assert thompson[..., -20:].mean() > 0.7
    assert (ucb[..., :5].sum(-1) == 1).all()  # each arm once
