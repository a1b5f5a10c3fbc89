"""Returns and advantages, against the definition written out step by step."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icrl.rl.returns import gae, n_step_returns

FLOATS = st.floats(-5, 5)
STEP = st.tuples(FLOATS, FLOATS, FLOATS, st.booleans(), st.booleans())
SHARES = st.sampled_from([0.0, 0.5, 0.95, 1.0])
Steps = list[tuple[float, float, float, bool, bool]]


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


def test_gae_by_hand() -> None:
    """V = 4 everywhere before and 8 after, no reward but the last: delta is 0.5 * 8 - 4 = 0, but -4 where the task
    ended, and 3 at a reward of 3. The trace, 1/8 a step, stops at either end: the streams run on, terminate in the
    middle, are cut by the clock there, and do both."""
    reward = torch.tensor([0.0, 0.0, 3.0])[:, None].expand(3, 4)
    value, next_value = torch.full((3, 4), 4.0), torch.full((3, 4), 8.0)
    terminated, truncated = torch.zeros(3, 4, dtype=torch.bool), torch.zeros(3, 4, dtype=torch.bool)
    terminated[1, 1] = terminated[1, 3] = truncated[1, 2] = truncated[1, 3] = True
    got = gae(reward, value, next_value, terminated, truncated, 0.5, 0.25)
    assert got.T.tolist() == [[3 / 64, 3 / 8, 3.0], [-0.5, -4.0, 3.0], [0.0, 0.0, 3.0], [-0.5, -4.0, 3.0]]


def by_definition(steps: Steps, discount: float, gae_lambda: float) -> list[float]:
    """sum over k of (discount * gae_lambda)^k * delta_{t+k}, up to the end of the episode or the rollout."""
    advantages = []
    for start in range(len(steps)):
        total, weight = 0.0, 1.0
        for reward, value, next_value, terminated, truncated in steps[start:]:
            total += weight * (reward + (0.0 if terminated else discount * next_value) - value)
            weight *= discount * gae_lambda
            if terminated or truncated:
                break
        advantages.append(total)
    return advantages


def returns_by_definition(steps: Steps, discount: float) -> list[float]:
    """Sum of discounted rewards from each step until the task, the clock or the rollout ends, and the value there."""
    returns = []
    for start in range(len(steps)):
        total, weight, ahead = 0.0, 1.0, 0.0
        for reward, _, next_value, terminated, truncated in steps[start:]:
            total, weight = total + weight * reward, weight * discount
            ahead = 0.0 if terminated else next_value
            if terminated or truncated:
                break
        returns.append(total + weight * ahead)
    return returns


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 4).flatmap(lambda n: st.lists(st.tuples(*[STEP] * n), min_size=1)), SHARES, SHARES)
def test_both_equal_their_definitions(rows: list[Steps], discount: float, gae_lambda: float) -> None:
    """In each of one to four streams, which end at different times."""
    reward, value, next_value, terminated, truncated = (
        torch.tensor([[step[i] for step in row] for row in rows]) for i in range(5)
    )
    ends = (next_value.double(), terminated, truncated, discount)
    advantage = gae(reward.double(), value.double(), *ends, gae_lambda)
    returns = n_step_returns(reward.double(), *ends)
    for stream, steps in enumerate(zip(*rows, strict=True)):
        for ours, expected in (
            (advantage, by_definition([*steps], discount, gae_lambda)),
            (returns, returns_by_definition([*steps], discount)),
        ):
            torch.testing.assert_close(ours[:, stream], torch.tensor(expected).double(), rtol=0, atol=1e-4)
