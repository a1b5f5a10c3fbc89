"""Bandits against plain statistics."""

import math

import numpy as np
import pytest
import torch
from small_worlds import bandit

from icrl.contracts import ConfigError
from icrl.randomness import stream_seeds
from icrl.spaces import discrete_spec

KINDS = ["bernoulli", "gaussian"]


@pytest.mark.parametrize("num_contexts", [1, 4])
@pytest.mark.parametrize("num_steps", [1, 5])
@pytest.mark.parametrize("kind", KINDS)
def test_rewards_come_as_often_as_the_outcomes_say(kind: str, num_steps: int, num_contexts: int) -> None:
    """Each reward value of each arm in each context, over many streams and steps, within 5 standard deviations.
    Contexts come equally often. A single pull is an episode that ends, several are cut by the clock."""
    options = {"num_arms": 3, "num_contexts": num_contexts, "num_tasks": 3, "max_episode_steps": num_steps}
    env = bandit(distribution=kind, **options)
    assert env.means.shape == (3, num_contexts, 3) and env.spec.num_obs == num_contexts
    tasks = env.all_tasks().repeat_interleave(1500, dim=0)
    state, step = env.reset(tasks, stream_seeds(0, len(tasks)))
    paid = torch.zeros(3, num_contexts, 3, env.spec.num_rewards)
    for time in range(1, 13):
        assert torch.equal(step.optimal_action, env.means[tasks[:, 0], step.obs].argmax(1))
        shown, arm = step.obs, torch.full((len(tasks),), time % 3)
        state, step = env.step(state, arm)
        assert (step.terminated == (num_steps == 1)).all() and (num_steps > 1 or torch.equal(step.final_obs, shown))
        assert (step.timestep == time % num_steps).all() and (step.truncated == (time % num_steps == 0)).all()
        place = (tasks[:, 0], shown, arm, env.spec.reward_index(step.reward))
        paid.index_put_(place, torch.ones(len(tasks)), accumulate=True)
    assert (paid.sum((0, 2, 3)) / paid.sum() - 1 / num_contexts).abs().max() < 0.01
    for task, context in np.ndindex(3, num_contexts):
        found = env.outcomes(torch.tensor([task]), torch.tensor(context), torch.arange(3))
        chance = torch.zeros(3, env.spec.num_rewards, dtype=found.probability.dtype)
        chance.scatter_add_(1, found.reward_index.long(), found.probability)
        pulls = paid[task, context].sum(-1, keepdim=True)
        error = (paid[task, context] / pulls - chance).abs()
        assert (error <= 5 * (chance * (1 - chance) / pulls).sqrt() + 1e-3).all()


def test_gaussian_outcomes_are_a_rounded_normal() -> None:
    """Each value has the probability of the interval that is rounded to it; the means are kept."""
    env = bandit(num_arms=5, num_tasks=200, distribution="gaussian")
    values = env.spec.reward_values
    assert values == tuple(np.arange(-8, 8.25, 0.25))
    drawn = torch.randn(200, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for task, arm in ((0, 0), (7, 3), (199, 4)):
        edges = [(value + side - float(drawn[task, arm])) / 0.5 for value in values for side in (-0.125, 0.125)]
        below = [0.5 * (1 + math.erf(edge / math.sqrt(2))) for edge in edges]
        expected = [high - low for low, high in zip(below[::2], below[1::2], strict=True)]
        chance = env.outcomes(torch.tensor([task]), torch.tensor(0), torch.tensor(arm)).probability
        assert chance.tolist() == pytest.approx(expected, abs=1e-12)
    assert (env.means[:, 0] - drawn).abs().max() < 1e-3
    high = bandit(num_arms=2, num_tasks=50, distribution="gaussian", first_mean=8.0)
    chance = high.outcomes(high.all_tasks(), torch.tensor(0), torch.tensor(0)).probability
    assert torch.allclose(chance.sum(-1), torch.ones(50, dtype=chance.dtype))
    assert (chance[:, -1] > 0.5).all()  # rewards beyond the grid are rounded to its end


def test_bernoulli_means_fill_the_unit_interval() -> None:
    means, quarters = bandit().means, torch.tensor([0.25, 0.5, 0.75]).double()
    assert means.shape == (1100, 1, 10) and (means.flatten().quantile(quarters) - quarters).abs().max() < 0.02


@pytest.mark.parametrize("kind", KINDS)
def test_sizes_descriptions_and_the_best_arm(kind: str) -> None:
    env = bandit(num_arms=4, num_tasks=6, max_episode_steps=9, distribution=kind)
    values = (0.0, 1.0) if kind == "bernoulli" else env.spec.reward_values
    assert env.spec == discrete_spec(1, 4, values, 0, 9, "best_action")
    assert env.all_tasks().tolist() == [[number] for number in range(6)] and env.goal_cell(env.all_tasks()) is None
    best = env.reset(env.all_tasks(), stream_seeds(0, 6))[1].optimal_action
    assert torch.equal(best, env.means[:, 0].argmax(1))
    assert env.map_view(torch.tensor([4])) == (1, 4, (int(best[4]),)) and env.label(torch.tensor([5])) == "bandit_5"
    assert env.cell(torch.tensor([0, 0]), torch.tensor([3, -1])).tolist() == [3, -1]
    assert len(set(env.fingerprint(env.all_tasks()))) == 6


# ---- contexts and features


def test_a_linear_bandit_by_hand() -> None:
    """Means are products with the features, which lie on the unit sphere and are the same in all tasks; two means with
    the features of two arms tell the third."""
    env = bandit(num_arms=3, num_contexts=2, num_tasks=50, distribution="gaussian", num_features=2)
    assert env.features is not None and torch.allclose(env.features.norm(dim=-1), torch.ones(2, 3).double())
    for task in (0, 17, 49):
        (a, b), (c, d) = env.features[0, :2].tolist()
        x, y = env.means[task, 0, :2].tolist()
        theta = ((x * d - b * y) / (a * d - b * c), (a * y - c * x) / (a * d - b * c))
        for context, arm in np.ndindex(2, 3):
            phi = env.features[context, arm].tolist()
            expected = phi[0] * theta[0] + phi[1] * theta[1]
            assert float(env.means[task, context, arm]) == pytest.approx(expected, abs=0.02)
    many = bandit(num_tasks=3000, distribution="gaussian", num_features=3).means
    assert abs(many.mean()) < 0.05 and abs(many.std() - 1) < 0.05


def test_one_context_without_features_is_the_plain_bandit_and_a_map_has_a_row_for_each() -> None:
    plain, wide = bandit(num_arms=4, num_tasks=6), bandit(num_arms=2, num_contexts=2, num_tasks=6)
    assert torch.equal(plain.means.view(6, 2, 2), wide.means)
    best = wide.means[3].argmax(1).tolist()
    assert wide.map_view(torch.tensor([3])) == (2, 2, (best[0], 2 + best[1]))
    assert wide.cell(torch.tensor([1, 0, 1]), torch.tensor([0, 1, -1])).tolist() == [2, 1, -1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_features": 2}, "env.num_features=2 with env.distribution=bernoulli: .*env.distribution=gaussian"),
        ({"num_contexts": 1000}, "must be at most 1000000 arms"),
    ],
)
def test_bandits_that_cannot_be_are_refused(options: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        bandit(**options)
