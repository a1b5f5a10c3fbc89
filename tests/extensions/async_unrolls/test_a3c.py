"""V-trace against its definition written out step by step, and options of A3C."""

from collections.abc import Sequence
from math import prod
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import check_refusal

from icrl.app.compose import load_config
from icrl.extensions.async_unrolls.a3c import v_trace

FLOATS = st.floats(-5, 5)
STEP = st.tuples(FLOATS, FLOATS, FLOATS, st.booleans(), st.booleans())
SHARES = st.sampled_from([0.0, 0.5, 0.95, 1.0])
Steps = Sequence[tuple[float, float, float, bool, bool]]
RATIOS = st.sampled_from([1.0, 0.1, 0.9, 1.5, 30.0])


def v_trace_by_definition(steps: Steps, ratios: Sequence[float], discount: float) -> tuple[list[float], list[float]]:
    """Equation 1 of the paper, with lambda and both clips 1: from each step s a sum over the steps t to the end of its
    episode or of the window, each weighted by a product over the steps between them; then the advantages of its policy
    gradient."""
    rho = [min(1.0, ratio) for ratio in ratios]
    targets, advantages = [], []
    for s in range(len(steps)):
        end = next((t for t in range(s, len(steps)) if any(steps[t][3:])), len(steps) - 1)
        target = steps[s][1]
        for t in range(s, end + 1):
            reward, value, next_value, terminated, _ = steps[t]
            td_error = reward + discount * (0.0 if terminated else next_value) - value
            target += discount ** (t - s) * prod(rho[i] for i in range(s, t)) * rho[t] * td_error
        targets.append(target)
    for s, (reward, value, next_value, terminated, truncated) in enumerate(steps):
        bootstrap = 0.0 if terminated else next_value if truncated or s == len(steps) - 1 else targets[s + 1]
        advantages.append(rho[s] * (reward + discount * bootstrap - value))
    return targets, advantages


def v_trace_of(steps: Steps, ratios: Sequence[float], discount: float) -> tuple[torch.Tensor, torch.Tensor]:
    """The same by the function, for one stream."""
    columns: Any = (torch.tensor(column, dtype=torch.float64)[:, None] for column in zip(*steps, strict=True))
    reward, value, next_value, *ends = columns
    ratio = torch.tensor(ratios, dtype=torch.float64)[:, None]
    target, advantage = v_trace(reward, value, next_value, *(end.bool() for end in ends), discount, ratio)
    return target[:, 0], advantage[:, 0]


@settings(max_examples=40)
@given(st.lists(st.tuples(STEP, RATIOS), min_size=1, max_size=8), SHARES)
def test_v_trace_equals_its_definition(rows, discount):
    steps, ratios = zip(*rows, strict=True)
    following = [step[1] for step in steps[1:]]  # the value of the next state, unless the episode ended
    steps = [
        (r, v, n if t or u else later, t, u) for (r, v, n, t, u), later in zip(steps, [*following, 1.5], strict=True)
    ]
    expected = v_trace_by_definition(steps, ratios, discount)
    for ours, theirs in zip(v_trace_of(steps, ratios, discount), expected, strict=True):
        torch.testing.assert_close(ours, torch.tensor(theirs, dtype=torch.float64), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("ratios", "targets", "advantages"),
    [  # V = 2, 4 and 6 after the last step; rewards 1, 2. The TD error of the last step is 2 + 6/2 - 4 = 1
        ([2.0, 0.5], [3.25, 4.5], [1.25, 0.5]),  # 2 + (1 + 4/2 - 2) + 1/2 * 1/2;  1 + 4.5/2 - 2
        ([0.5, 0.5], [2.625, 4.5], [0.625, 0.5]),  # 2 + 1/2 * 1 + 1/2 * 1/2 * 1/2
        ([1.0, 1.0], [3.5, 5.0], [1.5, 1.0]),  # 1 + 2/2 + 6/4: the return of two steps
    ],
)
def test_v_trace_by_hand(ratios, targets, advantages):
    """With a discount of 1/2."""
    steps = [(1.0, 2.0, 4.0, False, False), (2.0, 4.0, 6.0, False, False)]
    found = v_trace_of(steps, ratios, 0.5)
    assert [part.tolist() for part in found] == [targets, advantages]


@pytest.mark.parametrize("length", [1.5, 3.5, 12.5])
@pytest.mark.parametrize("num_envs", [1, 7, 16])
def test_lives_fit_unrolls_of_fractions_of_steps(length: float, num_envs: int) -> None:
    options = ("source=a3c", f"source.unroll_length={length}", f"source.num_envs={num_envs}")
    source = load_config(options).source
    assert 30_000 <= source.num_env_steps < 30_000 + num_envs * (length + 1)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["source.task_change=0.5"], ["source.task_change=0.5", "source.async_unroll=false"]),
        (["source.shared=true", "source.num_learners=1"], ["not source.name=a3c"]),
    ],
)
def test_conflicts_are_refused_in_one_line(options: list[str], named: list[str]) -> None:
    check_refusal(load_config, ["source=a3c", *options], named)
