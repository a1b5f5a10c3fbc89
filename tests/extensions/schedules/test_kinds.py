"""Kinds of schedules, against numbers worked by hand and written out as a loop or as a textbook formula."""

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rates import POINTS, TIME, VALUE, Mapping, at, check_rate, rates

from icrl.config.modules import load_plugins
from icrl.config.schedules import make_schedule, values_of

pytestmark = pytest.mark.quick
load_plugins()
STEP = {"kind": "step", "progress": "env_steps", "points": [[10, 3], [20, 2.0], [30, 1.0]]}
DECAY = {"kind": "exponential", "progress": "updates", "initial": 8.0, "rate": 0.5, "time": 10}
ASYMPTOTE = {**DECAY, "final": 4.0}
INVERSE = {"kind": "inverse", "progress": "iterations", "initial": 0.5, "rate": 2.0}
TRIANGLE = {"kind": "cyclical", "progress": "iterations", "base": 1, "bound": 5, "half_cycle": 4, "shape": "linear"}
SQUARE = {**TRIANGLE, "shape": "step"}
TENTHS = {**SQUARE, "progress": "percent", "half_cycle": 0.1}

BY_HAND: list[tuple[Mapping, dict[float, float], list[float]]] = [  # rate, what it is at which p, its values
    (STEP, {0: 3, 9: 3, 10: 2, 19: 2, 20: 1, 29: 1, 30: 1, 10**9: 1}, [3, 2, 1]),
    (DECAY, {0: 8, 10: 4, 20: 2, 5: 8 / math.sqrt(2), 100_000: 0}, [8]),
    (ASYMPTOTE, {0: 8, 10: 6, 20: 5, 100_000: 4}, [8, 4]),
    (INVERSE, {0: 0.5, 4: 0.25, 12: 0.125}, [0.5]),
    (SQUARE, {0: 1, 3: 1, 4: 5, 7: 5, 8: 1, 12: 5, 4001: 1}, [1, 5]),
    (TENTHS, {number / 10: (1, 5)[number % 2] for number in range(11)}, [1, 5]),
    (TRIANGLE, {0: 1, 1: 2, 3: 4, 4: 5, 5: 4, 7: 2, 8: 1, 9: 2}, [1, 5]),
]


@pytest.mark.parametrize(("rate", "expected", "values"), BY_HAND)
def test_by_hand(rate: Mapping, expected: dict[float, float], values: list[float]) -> None:
    assert [at(rate, p) for p in expected] == pytest.approx(list(expected.values()), abs=1e-12)
    assert values_of(rate) == values


def step_by_loop(p: float, points: list[list[float]]) -> float:
    for until, value in points:
        if p < until:
            return value
    return points[-1][1]


def exponential_by_formula(p: float, initial: float, rate: float, time: float, final: float) -> float:
    r = rate ** (1 / time)
    return initial * r**p + final * (1 - r**p)


def cyclical_by_walking(p: int, base: float, bound: float, half_cycle: int, shape: str) -> float:
    position, direction = 0, 1
    for _ in range(p):
        position += direction
        if position in (0, half_cycle):
            direction = -direction
    if shape == "linear":
        return base + (bound - base) * position / half_cycle
    return bound if direction < 0 else base


POSITIVE = st.floats(0.001, 10)
KEYS: dict[str, Mapping] = {
    "step": {"points": POINTS},
    "exponential": {"initial": VALUE, "rate": st.floats(0.01, 1), "time": TIME, "final": VALUE},
    "inverse": {"initial": POSITIVE, "rate": POSITIVE},
    "cyclical": {"base": VALUE, "bound": VALUE, "half_cycle": TIME, "shape": st.sampled_from(["step", "linear"])},
}
REFERENCES: dict[str, Callable[..., float]] = {
    "step": step_by_loop,
    "exponential": exponential_by_formula,
    "inverse": lambda p, initial, rate: rate / (p + rate / initial),
    "cyclical": cyclical_by_walking,
}


@given(rates(KEYS), st.lists(st.integers(0, 120), min_size=1, max_size=9))
def test_equals_the_kind_written_out_in_any_order_and_stays_between_its_values(rate: Mapping, ps: list[int]) -> None:
    check_rate(rate, REFERENCES[rate["kind"]], ps, falls=rate["kind"] == "inverse")


WRONG: list[tuple[Any, str]] = [
    ({"kind": "inverse", "progress": "updates", "initial": 1}, "rate is missing"),
    ({**INVERSE, "initial": 0}, "initial=0: must be greater than 0"),
    ({**DECAY, "rate": 1.01}, "rate=1.01: must be less than or equal to 1"),
    ({**SQUARE, "progress": "percent"}, "half_cycle=4: must be <= 1, since progress is percent"),
    ({**SQUARE, "shape": "lineal"}, "shape='lineal': must be 'step' or 'linear'"),
    ({**STEP, "points": []}, "points=[]: .*should have at least 1 item"),
    ({**STEP, "points": [[0, 2]]}, "points[0][0]=0: must be > 0"),
]


@pytest.mark.parametrize(("rate", "message"), WRONG)
def test_what_is_wrong_is_said(rate: Mapping, message: str) -> None:
    with pytest.raises(ValueError) as wrong:  # noqa: PT011 - compared below
        make_schedule(rate)
    assert all(part in str(wrong.value) for part in message.split(".*"))


@pytest.mark.parametrize(
    "rate", [{**DECAY, "rate": 1}, {**STEP, "progress": "percent", "points": [[0.5, 1], [1, 0]]}, INVERSE]
)
def test_the_edge_of_what_is_allowed(rate: Mapping) -> None:
    make_schedule(rate)
