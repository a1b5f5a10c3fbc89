"""Returns and advantages, against the definition written out step by step."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from written_out import advantages_and_returns

from icrl.rl.returns import n_step_returns

FLOATS = st.floats(-5, 5)
STEP = st.tuples(FLOATS, FLOATS, FLOATS, st.booleans(), st.booleans())
SHARES = st.sampled_from([0.0, 0.5, 0.95, 1.0])


@settings(max_examples=25)
@given(st.integers(1, 3).flatmap(lambda n: st.lists(st.tuples(*[STEP] * n), min_size=1, max_size=12)), SHARES)
def test_returns_equal_their_definition(rows, discount):
    """In each of one to three streams, which end at different times."""
    columns = (torch.tensor([[step[i] for step in row] for row in rows]) for i in range(5))
    reward, value, next_value, terminated, truncated = columns
    ends = (next_value.double(), terminated, truncated, discount)
    _, expected = advantages_and_returns(reward.double(), value.double(), *ends)
    torch.testing.assert_close(n_step_returns(reward.double(), *ends), expected, rtol=0, atol=1e-4)
