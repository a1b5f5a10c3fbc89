"""Returns, against the definition written out step by step."""

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from src.rl.returns import n_step_returns


def by_definition(
    reward: list[float], next_value: list[float], terminated: list[bool], truncated: list[bool], discount: float
) -> list[float]:
    """From each step walk ahead and add up what comes, until the task, the clock or the rollout ends."""
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


@settings(deadline=None)
@given(
    st.integers(1, 4).flatmap(
        lambda streams: st.lists(st.lists(STEP, min_size=streams, max_size=streams), min_size=1, max_size=9)
    ),
    st.sampled_from([0.0, 0.5, 0.99, 1.0]),
)
def test_equals_the_definition(steps: list[list[tuple[float, float, bool, bool]]], discount: float) -> None:
    columns = [torch.tensor([[step[i] for step in row] for row in steps]) for i in range(4)]
    reward, next_value, terminated, truncated = columns
    got = n_step_returns(reward.double(), next_value.double(), terminated, truncated, discount)
    for stream in range(reward.shape[1]):
        expected = by_definition(*(column[:, stream].tolist() for column in columns), discount)
        assert all(math.isclose(a, b, abs_tol=1e-5) for a, b in zip(got[:, stream].tolist(), expected, strict=True))


def test_by_hand() -> None:
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
