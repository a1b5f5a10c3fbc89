"""Returns and advantages, against the definition written out step by step."""

from collections.abc import Sequence

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icrl.rl.returns import gae, n_step_returns

FLOATS = st.floats(-5, 5)
STEP = st.tuples(FLOATS, FLOATS, FLOATS, st.booleans(), st.booleans())
SHARES = st.sampled_from([0.0, 0.5, 0.95, 1.0])
Steps = Sequence[tuple[float, float, float, bool, bool]]


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
def test_both_equal_their_definitions(rows: Sequence[Steps], discount: float, gae_lambda: float) -> None:
    """In each of one to four streams, which end at different times."""
    reward, value, next_value, terminated, truncated = (
        torch.tensor([[step[i] for step in row] for row in rows]) for i in range(5)
    )
    ends = (next_value.double(), terminated, truncated, discount)
    advantage = gae(reward.double(), value.double(), *ends, gae_lambda)
    returns = n_step_returns(reward.double(), *ends)
    for stream, steps in enumerate(zip(*rows, strict=True)):
        expected = by_definition(steps, discount, gae_lambda), returns_by_definition(steps, discount)
        ours = torch.stack([advantage[:, stream], returns[:, stream]])
        torch.testing.assert_close(ours, torch.tensor(expected).double(), rtol=0, atol=1e-4)
