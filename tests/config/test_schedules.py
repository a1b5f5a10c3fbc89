"""Schedules, against numbers worked by hand and against each kind written out as a loop or as its textbook formula."""

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from icrl.config.schedules import Clock, make_schedule, values_of

Mapping = dict[str, Any]


def clock_at(progress: str, p: float) -> Clock:
    """A clock that shows `p` in one field and in the others what is wrong for every test here."""
    return Clock(percent=0.123, iterations=123, env_steps=1234, updates=12345)._replace(**{progress: p})


def at(rate: Any, p: float) -> float:
    return make_schedule(rate)(clock_at(rate["progress"], p))


STEP = {"kind": "step", "progress": "env_steps", "points": [[10, 3], [20, 2.0], [30, 1.0]]}
LINEAR = {"kind": "linear", "progress": "percent", "points": [[0, 1.0], [0.5, 3.0], [0.75, 2]]}
DECAY = {"kind": "exponential", "progress": "updates", "initial": 8.0, "rate": 0.5, "time": 10}
ASYMPTOTE = {**DECAY, "final": 4.0}
INVERSE = {"kind": "inverse", "progress": "iterations", "initial": 0.5, "rate": 2.0}
COSINE = {"kind": "cosine", "progress": "updates", "initial": 1.0, "final": 0.2, "time": 60}
TRIANGLE = {"kind": "cyclical", "progress": "iterations", "base": 1, "bound": 5, "half_cycle": 4, "shape": "linear"}
SQUARE = {**TRIANGLE, "shape": "step"}
CONSTANT = {"kind": "constant", "progress": "updates", "value": 4}
HOT = {"warmup": {"until": 20, "start": 0.5}}

BY_HAND: list[tuple[Mapping, dict[float, float]]] = [  # rate -> what it is at which p
    (STEP, {0: 3, 9: 3, 10: 2, 19: 2, 20: 1, 29: 1, 30: 1, 10**9: 1}),
    (LINEAR, {0: 1, 0.25: 2, 0.5: 3, 0.625: 2.5, 0.75: 2, 0.8: 2, 1: 2}),
    (DECAY, {0: 8, 10: 4, 20: 2, 5: 8 / math.sqrt(2), 100_000: 0}),
    (ASYMPTOTE, {0: 8, 10: 6, 20: 5, 100_000: 4}),
    (INVERSE, {0: 0.5, 4: 0.25, 12: 0.125}),
    (SQUARE, {0: 1, 3: 1, 4: 5, 7: 5, 8: 1, 12: 5, 4001: 1}),
    (TRIANGLE, {0: 1, 1: 2, 3: 4, 4: 5, 5: 4, 7: 2, 8: 1, 9: 2}),
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


VALUE = st.floats(-10, 10)
TIME = st.integers(1, 50)
FACTOR = st.floats(0.01, 1)
POSITIVE = st.floats(0.001, 10)
POINTS = st.dictionaries(TIME, VALUE, min_size=1, max_size=6).map(lambda found: [[p, found[p]] for p in sorted(found)])
CORNERS = st.builds(lambda first, rest: [[0, first], *rest], VALUE, POINTS)


def step_by_loop(p: float, points: list[list[float]]) -> float:
    for until, value in points:
        if p < until:
            return value
    return points[-1][1]


def linear_by_loop(p: float, points: list[list[float]]) -> float:
    for (left, a), (right, b) in pairwise(points):
        if left <= p <= right:
            return a + (b - a) / (right - left) * (p - left)
    return points[-1][1]


def cosine_by_half_angle(p: float, initial: float, final: float, time: float, begin: float = 0) -> float:
    return final + (initial - final) * math.cos(math.pi / 2 * min(1, (p - begin) / (time - begin))) ** 2


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


KEYS: dict[str, Mapping] = {
    "constant": {"value": VALUE},
    "step": {"points": POINTS},
    "linear": {"points": CORNERS},
    "exponential": {"initial": VALUE, "rate": FACTOR, "time": TIME, "final": VALUE},
    "inverse": {"initial": POSITIVE, "rate": POSITIVE},
    "cosine": {"initial": VALUE, "final": VALUE, "time": TIME},
    "cyclical": {"base": VALUE, "bound": VALUE, "half_cycle": TIME, "shape": st.sampled_from(["step", "linear"])},
}
REFERENCES: dict[str, Callable[..., float]] = {
    "constant": lambda p, value: value,
    "step": step_by_loop,
    "linear": linear_by_loop,
    "exponential": exponential_by_formula,
    "inverse": lambda p, initial, rate: rate / (p + rate / initial),
    "cosine": cosine_by_half_angle,
    "cyclical": cyclical_by_walking,
}


@st.composite
def rates(draw: st.DrawFn) -> Mapping:
    kind = draw(st.sampled_from(sorted(KEYS)))
    rate = {"kind": kind, "progress": "updates", **{key: draw(keys) for key, keys in KEYS[kind].items()}}
    if draw(st.booleans()):
        rate["warmup"] = {"until": draw(st.integers(1, 40)), "start": draw(VALUE)}
        if kind == "cosine":
            rate["time"] += rate["warmup"]["until"]
    return rate


@given(rates(), st.lists(st.integers(0, 120), min_size=1, max_size=9), st.integers(0, 10**6))
def test_equals_the_kind_written_out_in_any_order_and_stays_between_its_values(rate, ps, late):
    keys = {key: value for key, value in rate.items() if key not in ("kind", "progress", "warmup")}
    own, until, start = REFERENCES[rate["kind"]], 0, 0.0
    if warmup := rate.get("warmup"):
        until, start = warmup["until"], warmup["start"]
    if rate["kind"] == "cosine":
        keys["begin"] = until
    schedule = make_schedule(rate)  # remembers nothing: progress may be set back
    for p in ps:
        expected = own(p, **keys) if p >= until else start + (own(until, **keys) - start) * p / until
        assert math.isclose(schedule(clock_at("updates", p)), expected, rel_tol=1e-9, abs_tol=1e-9)
    values = [*values_of(rate), *([0.0] if rate["kind"] == "inverse" else [])]
    for p in (*ps, late):
        assert min(values) - 1e-12 <= schedule(clock_at("updates", p)) <= max(values) + 1e-12


VALUES: list[tuple[Any, list[float]]] = [
    *((STEP, [3, 2, 1]), (LINEAR, [1, 3, 2]), (ASYMPTOTE, [8, 4]), (INVERSE, [0.5])),
    *((SQUARE, [1, 5]), ({**COSINE, **HOT}, [1, 0.2, 0.5])),
]


@pytest.mark.parametrize(("rate", "values"), VALUES)
def test_values_are_told_from_times(rate: Any, values: list[float]) -> None:
    assert values_of(rate) == values


def without(rate: Mapping, key: str) -> Mapping:
    return {name: value for name, value in rate.items() if name != key}


FINITE, LATE = "must be a finite number", "must be <= 1, since progress is percent"
ABOVE, REQUIRED = "must be greater than 0", "required are kind, progress"
PAIRS = "must be a list of at least {} pairs [time, value]"
WRONG: list[tuple[Any, str]] = [
    *((rate, f"{rate!r}: {FINITE} or a mapping") for rate in ("0.1", None, True, math.nan, -math.inf, 10**400, [0.1])),
    ({**LINEAR, "kind": "lineer"}, "kind=lineer: must be one of constant, step, linear, .*(did you mean linear?)"),
    (without(LINEAR, "kind"), "kind=None: must be one of constant, step, linear"),
    ({**LINEAR, "kind": ["linear"]}, "kind=.*: must be one of constant"),
    ({**LINEAR, "progress": "update"}, "progress=update: must be one of percent, .*, updates (did you mean updates?)"),
    (without(LINEAR, "progress"), f"progress is missing: {REQUIRED}, points"),
    ({**LINEAR, "ponts": 1}, "ponts: unknown key, .*kind, progress, points, warmup (did you mean points?)"),
    ({**CONSTANT, 5: 1}, "[5]=5: Keys should be strings"),
    (without(DECAY, "rate"), f"rate is missing: {REQUIRED}, initial, rate, time"),
    ({**CONSTANT, "value": math.inf}, f"value=inf: {FINITE}"),
    ({**INVERSE, "initial": 0}, f"initial=0: {ABOVE}"),
    ({**DECAY, "rate": 1.01}, "rate=1.01: must be less than or equal to 1"),
    ({**DECAY, "time": 0}, f"time=0: {ABOVE}"),
    ({**SQUARE, "progress": "percent"}, f"half_cycle=4: {LATE}"),
    ({**SQUARE, "shape": "lineal"}, "shape=lineal: must be one of step, linear (did you mean linear?)"),
    ({**STEP, "points": []}, f"points=[]: {PAIRS.format(1)}"),
    ({**STEP, "points": [[1, 2, 3]]}, f"points=[[1, 2, 3]]: {PAIRS.format(1)}"),
    ({**STEP, "points": [[0, 2]]}, "points[0][0]=0: must be > 0"),
    ({**STEP, "points": [[1, 2], [1, 3]]}, "points=.*: times must strictly increase"),
    ({**STEP, "points": [[1, 2], [2, math.nan]]}, f"points[1][1]=nan: {FINITE}"),
    ({**LINEAR, "points": [[0, 2]]}, f"points=[[0, 2]]: {PAIRS.format(2)}"),
    ({**LINEAR, "points": [[0.1, 2], [1, 3]]}, "points[0][0]=0.1: must be 0"),
    ({**LINEAR, "points": [[0, 2], [50, 3]]}, f"points[1][0]=50: {LATE}"),
    ({**LINEAR, "warmup": {"until": 2, "start": 0}}, f"warmup.until=2: {LATE}"),
    ({**LINEAR, "warmup": {"until": 0.1}}, "warmup.start is missing: required are until, start"),
    ({**LINEAR, "warmup": 0.1}, "warmup=0.1: must be a mapping with until and start"),
    ({**COSINE, "warmup": {"until": 60, "start": 0}}, "time=60: must be > warmup.until=60"),
]


@pytest.mark.parametrize(("rate", "message"), WRONG)
def test_what_is_wrong_is_said(rate: Any, message: str) -> None:
    for function in (make_schedule, values_of):
        with pytest.raises(ValueError) as wrong:  # noqa: PT011 - the parts are compared below
            function(rate)
        assert all(part in str(wrong.value) for part in message.split(".*")), wrong.value


EDGES = [
    {**DECAY, "rate": 1},
    {**STEP, "progress": "percent", "points": [[0.5, 1], [1, 0]]},
    {**COSINE, "progress": "percent", "time": 1, "warmup": {"until": 0.999, "start": 0}},
    {**STEP, "points": ((1, 2), (2, 3))},
    {**COSINE, "warmup": None},
]


@pytest.mark.parametrize("rate", EDGES)
def test_the_edge_of_what_is_allowed(rate: Mapping) -> None:
    make_schedule(rate)
