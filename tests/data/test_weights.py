"""Weights of steps against loops over single numbers."""


import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from icrl.config.compose import load_config
from icrl.config.options import replace
from icrl.config.root import ObjectiveConfig
from icrl.contracts import EnvSpec
from icrl.data.weights import step_weights

SPEC = EnvSpec(num_obs=4, num_actions=2, reward_values=(-0.5, 0.0, 1.0), width=0, max_episode_steps=4)
SHAPE = (3, 10)
ONE = 2  # the index of the largest reward
OBJECTIVE = load_config().objective


def config(weighting: str, discount: float = 0.5, max_weight: float = 100.0) -> ObjectiveConfig:
    options = {"weighting": weighting, "discount": discount, "max_weight": max_weight}
    return replace(OBJECTIVE, **options)


def test_all_alike_without_weighting() -> None:
    reward, done = np.full(SHAPE, ONE), np.zeros(SHAPE, bool)
    assert (step_weights(config("none"), SPEC, reward, done) == 1).all()


def test_recency_grows_evenly_with_age() -> None:
    weights = step_weights(config("recency"), SPEC, np.zeros(SHAPE, int), np.zeros(SHAPE, bool))
    assert weights.mean() == pytest.approx(1)
    for row in weights:
        assert row == pytest.approx(np.arange(1, 11) * row[0])


@settings(deadline=None)
@given(
    reward=arrays(np.int64, SHAPE, elements=st.integers(0, 2)),
    done=arrays(np.bool_, SHAPE),
    discount=st.sampled_from([0.0, 0.5, 1.0]),
    max_weight=st.sampled_from([1.5, 100.0]),
)
def test_improvement_is_what_the_rest_of_the_episode_brought_over_what_others_had(
    reward: np.ndarray, done: np.ndarray, discount: float, max_weight: float
) -> None:
    gain = np.zeros(SHAPE)
    for row in range(SHAPE[0]):
        for start in range(SHAPE[1]):
            for k, t in enumerate(range(start, SHAPE[1])):
                gain[row, start] += discount**k * SPEC.reward_values[reward[row, t]]
                if done[row, t]:
                    break
    weights = step_weights(config("improvement", discount, max_weight), SPEC, reward, done)
    for stretch in (slice(0, 5), slice(5, 10)):
        alike = gain[:, stretch] - min(gain[:, stretch].min(), 0)
        expected = np.minimum(alike / alike.mean(), max_weight) if alike.any() else np.ones_like(alike)
        assert weights[:, stretch] == pytest.approx(expected, rel=1e-5)


def test_who_ends_a_costly_search_sooner_counts_more() -> None:
    """Each step costs 1 until the end pays 20: a row that comes to it in every third step, and one that never does."""
    spec = SPEC._replace(reward_values=(-1.0, 20.0), max_episode_steps=12)
    paid = np.arange(12) % 3 == 2
    reward, done = np.stack([paid, np.zeros(12, bool)]).astype(int), np.stack([paid, np.arange(12) == 11])
    quick, never = step_weights(config("improvement", discount=0.9), spec, reward, done)
    assert quick.min() > never.max()


def test_a_lucky_episode_counts_and_a_failure_at_that_age_does_not() -> None:
    """Two episodes of two steps a row. The first brings something in row 1 alone, the second in all rows but row 0."""
    spec = SPEC._replace(max_episode_steps=2, reward_values=(0.0, 0.5, 1.0))
    reward = np.array([[0, 0, 0, 0], [0, 2, 2, 0], [0, 0, 2, 0]])
    done = np.array([[False, True, False, True]] * 3)
    weights = step_weights(config("improvement", discount=1.0), spec, reward, done)
    assert weights[:, :2] == pytest.approx(np.array([[0, 0], [3, 3], [0, 0]]))
    assert weights[:, 2:] == pytest.approx(np.array([[0, 0], [3, 0], [3, 0]]))
