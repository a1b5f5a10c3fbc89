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


def by_definition(steps: Steps, discount: float, gae_lambda: float) -> tuple[list[float], list[float]]:
    """Advantages, sums of (discount * gae_lambda)^k * delta_{t+k}, and returns, sums of discounted rewards with the
    value at the end: from each step t to the end of its episode or of the rollout."""
    advantages, returns = [], []
    for start in range(len(steps)):
        advantage, rewards, ahead, weight, trace = 0.0, 0.0, 0.0, 1.0, 1.0
        for reward, value, next_value, terminated, truncated in steps[start:]:
            ahead = 0.0 if terminated else next_value
            advantage += trace * (reward + discount * ahead - value)
            rewards += weight * reward
            trace, weight = trace * discount * gae_lambda, weight * discount
            if terminated or truncated:
                break
        advantages.append(advantage)
        returns.append(rewards + weight * ahead)
    return advantages, returns


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 4).flatmap(lambda n: st.lists(st.tuples(*[STEP] * n), min_size=1)), SHARES, SHARES)
def test_both_equal_their_definitions(rows, discount, gae_lambda):
    """In each of one to four streams, which end at different times."""
    reward, value, next_value, terminated, truncated = (
        torch.tensor([[step[i] for step in row] for row in rows]) for i in range(5)
    )
    ends = (next_value.double(), terminated, truncated, discount)
    advantage = gae(reward.double(), value.double(), *ends, gae_lambda)
    returns = n_step_returns(reward.double(), *ends)
    for stream, steps in enumerate(zip(*rows, strict=True)):
        expected = torch.tensor(by_definition(steps, discount, gae_lambda), dtype=torch.float64)
        ours = torch.stack([advantage[:, stream], returns[:, stream]])
        torch.testing.assert_close(ours, expected, rtol=0, atol=1e-4)
