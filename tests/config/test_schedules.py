"""Schedules, against numbers worked by hand and against each kind written out as a loop or as its textbook formula."""

import math
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rates import HOT, POINTS, TIME, VALUE, Mapping, at, check_rate, clock_at, rates

from icrl.config.schedules import Clock, make_schedule, values_of

LINEAR = {"kind": "linear", "progress": "percent", "points": [[0, 1.0], [0.5, 3.0], [0.75, 2]]}
COSINE = {"kind": "cosine", "progress": "updates", "initial": 1.0, "final": 0.2, "time": 60}
CONSTANT = {"kind": "constant", "progress": "updates", "value": 4}

BY_HAND: list[tuple[Mapping, dict[float, float]]] = [  # rate -> what it is at which p
    (LINEAR, {0: 1, 0.25: 2, 0.5: 3, 0.625: 2.5, 0.75: 2, 0.8: 2, 1: 2}),
    ({**CONSTANT, **HOT}, {0: 0.5, 10: 2.25, 19: 3.825, 20: 4, 99: 4}),
    ({**LINEAR, "warmup": {"until": 0.25, "start": 0}}, {0: 0, 0.125: 1, 0.25: 2, 0.5: 3}),
    ({**COSINE, **HOT}, {0: 0.5, 10: 0.75, 20: 1, 40: 0.6, 60: 0.2, 70: 0.2}),
]


@pytest.mark.parametrize(("rate", "expected"), BY_HAND, ids=lambda value: value.get("kind"))
def test_by_hand(rate: Mapping, expected: dict[float, float]) -> None:
    assert [at(rate, p) for p in expected] == pytest.approx(list(expected.values()), abs=1e-12)


@pytest.mark.parametrize("number", [0, 3, 0.25, -1.5])
def test_a_number_is_a_constant(number: float) -> None:
    for rate in (number, {**CONSTANT, "value": number}):
        values = [*(make_schedule(rate)(clock_at("updates", p)) for p in (0, 7)), *values_of(rate)]
        assert values == [number] * 3 and all(type(value) is float for value in values)


@pytest.mark.parametrize("progress", Clock._fields)
def test_progress_names_the_field_of_the_clock(progress: str) -> None:
    schedule = make_schedule({"kind": "linear", "progress": progress, "points": [[0, 0], [1, 2]]})
    assert schedule(Clock(*(field == progress for field in Clock._fields))) == 2
    assert schedule(Clock(*(field != progress for field in Clock._fields))) == 0


def linear_by_loop(p: float, points: list[list[float]]) -> float:
    for (left, a), (right, b) in pairwise(points):
        if left <= p <= right:
            return a + (b - a) / (right - left) * (p - left)
    return points[-1][1]


def cosine_by_half_angle(p: float, initial: float, final: float, time: float, begin: float = 0) -> float:
    return final + (initial - final) * math.cos(math.pi / 2 * min(1, (p - begin) / (time - begin))) ** 2


KEYS: dict[str, Mapping] = {
    "constant": {"value": VALUE},
    "linear": {"points": st.builds(lambda first, rest: [[0, first], *rest], VALUE, POINTS)},
    "cosine": {"initial": VALUE, "final": VALUE, "time": TIME},
}
REFERENCES = {"constant": lambda p, value: value, "linear": linear_by_loop, "cosine": cosine_by_half_angle}


@given(rates(KEYS), st.lists(st.integers(0, 10**6) | st.integers(0, 120), min_size=1, max_size=9))
def test_equals_the_kind_written_out_in_any_order_and_stays_between_its_values(rate, ps):
    check_rate(rate, REFERENCES[rate["kind"]], ps)


def test_values_are_told_from_times() -> None:
    assert values_of(LINEAR) == [1, 3, 2] and values_of({**COSINE, **HOT}) == [1, 0.2, 0.5]


FINITE, LATE = "must be a finite number", "must be <= 1, since progress is percent"
WRONG: list[tuple[Any, str]] = [
    *((rate, f"{rate!r}: {FINITE} or a mapping") for rate in ("0.1", None, True, math.nan, -math.inf, 10**400, [0.1])),
    ({**LINEAR, "kind": "lineer"}, "kind=lineer: must be one of constant, linear, .*(did you mean linear?)"),
    ({"progress": "percent"}, "kind=None: must be one of constant, linear"),
    ({**LINEAR, "progress": "update"}, "progress='update': must be 'percent', 'iterations', 'env_steps' or 'updates'"),
    ({"kind": "linear", "points": [[0, 1], [1, 0]]}, "progress is missing"),
    ({**LINEAR, "ponts": 1}, "ponts: unknown key, .*kind, progress, points, warmup (did you mean points?)"),
    ({"kind": "constant", "progress": "updates"}, "value is missing"),
    ({**COSINE, "time": 0}, "time=0: must be greater than 0"),
    ({**LINEAR, "points": [[0, 2]]}, "points=[[0, 2]]: .*at least 2 items"),
    ({**LINEAR, "points": [[0, 2], [0, 3]]}, "points=.*: times must strictly increase"),
    ({**LINEAR, "points": [[0, 2], [1, math.nan]]}, "points[1][1]=nan: must be a finite number"),
    ({**LINEAR, "points": [[0.1, 2], [1, 3]]}, "points[0][0]=0.1: must be 0"),
    ({**LINEAR, "points": [[0, 2], [50, 3]]}, f"points[1][0]=50: {LATE}"),
    ({**LINEAR, "warmup": {"until": 2, "start": 0}}, f"warmup.until=2: {LATE}"),
    ({**LINEAR, "warmup": {"until": 0.1}}, "warmup.start is missing"),
    ({**COSINE, "warmup": {"until": 60, "start": 0}}, "time=60: must be > warmup.until=60"),
]


@pytest.mark.parametrize(("rate", "message"), WRONG)
def test_what_is_wrong_is_said(rate: Any, message: str) -> None:
    for function in (make_schedule, values_of):
        with pytest.raises(ValueError) as wrong:  # noqa: PT011 - the parts are compared below
            function(rate)
        assert all(part in str(wrong.value) for part in message.split(".*")), wrong.value


EDGES = [
    {**LINEAR, "points": ((0, 1), (1, 0))},
    {**COSINE, "progress": "percent", "time": 1, "warmup": {"until": 0.999, "start": 0}},
    {**COSINE, "warmup": None},
]


@pytest.mark.parametrize("rate", EDGES)
def test_the_edge_of_what_is_allowed(rate: Mapping) -> None:
    make_schedule(rate)
