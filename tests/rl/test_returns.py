"""Returns and advantages, against the definition written out step by step."""

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icrl.rl.returns import gae, n_step_returns


def by_definition(
    reward: list[float], next_value: list[float], terminated: list[bool], truncated: list[bool], discount: float
) -> list[float]:
    """Sum of discounted rewards from each step until the task, the clock or the rollout ends."""
    returns = []
    for start in range(len(reward)):
        total, weight = 0.0, 1.0
        for t in range(start, len(reward)):
            total += weight * reward[t]
            weight *= discount
            if terminated[t]:
                break
            if truncated[t] or t == len(reward) - 1:
                total += weight * next_value[t]
                break
        returns.append(total)
    return returns


STEP = st.tuples(st.floats(-5, 5), st.floats(-5, 5), st.booleans(), st.booleans())


@settings(deadline=None, max_examples=40)
@given(
    st.integers(1, 4).flatmap(
        lambda streams: st.lists(st.lists(STEP, min_size=streams, max_size=streams), min_size=1, max_size=9)
    ),
    st.sampled_from([0.0, 0.5, 0.99, 1.0]),
)
def test_n_step_returns_equal_the_definition(
    steps: list[list[tuple[float, float, bool, bool]]], discount: float
) -> None:
    columns = [torch.tensor([[step[i] for step in row] for row in steps]) for i in range(4)]
    reward, next_value, terminated, truncated = columns
    got = n_step_returns(reward.double(), next_value.double(), terminated, truncated, discount)
    for stream in range(reward.shape[1]):
        expected = by_definition(*(column[:, stream].tolist() for column in columns), discount)
        assert all(math.isclose(a, b, abs_tol=1e-5) for a, b in zip(got[:, stream].tolist(), expected, strict=True))


def test_n_step_returns_by_hand() -> None:
    """One stream that runs into the end of the rollout, one that terminates, one cut by the clock, one with both."""
    reward = torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 1.0], [1.0, 0.0, 1.0, 0.0]])
    next_value = torch.tensor([[10.0, 20.0, 40.0, 80.0]]).repeat(3, 1)
    ends = torch.zeros(3, 4, dtype=torch.bool)
    terminated, truncated = ends.clone(), ends.clone()
    terminated[1, 1] = terminated[1, 3] = truncated[1, 2] = truncated[1, 3] = True
    got = n_step_returns(reward, next_value, terminated, truncated, 0.5)
    assert got.T.tolist() == [
        [1 + 0.25 * 1 + 0.125 * 10, 0.5 * 1 + 0.25 * 10, 1 + 0.5 * 10],
        [0.5, 1.0, 0.5 * 20],
        [0.25 * 40, 0.5 * 40, 1 + 0.5 * 40],
        [0.5, 1.0, 0.5 * 80],
    ]


DISCOUNT, LAMBDA = 0.5, 0.25


def test_gae_by_hand() -> None:
    """V = 4 everywhere before and 8 after, no reward but the last: delta is 0.5 * 8 - 4 = 0, but -4 where the task
    ended, and 3 at a reward of 3. The trace, 1/8 a step, stops at either end: the streams run on, terminate in the
    middle, are cut by the clock there, and do both."""
    reward = torch.tensor([0.0, 0.0, 3.0])[:, None].expand(3, 4)
    value, next_value = torch.full((3, 4), 4.0), torch.full((3, 4), 8.0)
    terminated, truncated = torch.zeros(3, 4, dtype=torch.bool), torch.zeros(3, 4, dtype=torch.bool)
    terminated[1, 1] = terminated[1, 3] = truncated[1, 2] = truncated[1, 3] = True
    got = gae(reward, value, next_value, terminated, truncated, DISCOUNT, LAMBDA)
    assert got.T.tolist() == [[3 / 64, 3 / 8, 3.0], [-0.5, -4.0, 3.0], [0.0, 0.0, 3.0], [-0.5, -4.0, 3.0]]


def gae_by_definition(
    steps: list[tuple[float, float, bool, bool]], value: list[float], discount: float, gae_lambda: float
) -> list[float]:
    """sum over k of (discount * gae_lambda)^k * delta_{t+k}, up to the end of the episode or the rollout."""
    advantages = []
    for start in range(len(steps)):
        total, weight = 0.0, 1.0
        for (reward, next_value, terminated, truncated), baseline in zip(steps[start:], value[start:], strict=True):
            total += weight * (reward + (0.0 if terminated else discount * next_value) - baseline)
            weight *= discount * gae_lambda
            if terminated or truncated:
                break
        advantages.append(total)
    return advantages


STEPS = st.lists(STEP, min_size=1, max_size=9)
SHARES = st.sampled_from([0.0, 0.5, 0.95, 1.0])


@settings(deadline=None, max_examples=40)
@given(STEPS, st.lists(st.floats(-5, 5), min_size=9, max_size=9), SHARES, SHARES)
def test_gae_equals_the_definition(
    steps: list[tuple[float, float, bool, bool]], values: list[float], discount: float, gae_lambda: float
) -> None:
    reward, next_value, terminated, truncated = (torch.tensor(column)[:, None] for column in zip(*steps, strict=True))
    value = torch.tensor(values[: len(steps)], dtype=torch.float64)[:, None]
    got = gae(reward.double(), value, next_value.double(), terminated, truncated, discount, gae_lambda)
    expected = gae_by_definition(steps, values[: len(steps)], discount, gae_lambda)
    assert all(math.isclose(a, b, abs_tol=1e-4) for a, b in zip(got[:, 0].tolist(), expected, strict=True))
