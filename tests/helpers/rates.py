"""Rates that are drawn at random, compared with references of their kinds."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st

from icrl.config.schedules import Clock, make_schedule, values_of

Mapping = dict[str, Any]
VALUE = st.floats(-10, 10)
TIME = st.integers(1, 50)
POINTS = st.dictionaries(TIME, VALUE, min_size=1, max_size=6).map(lambda found: [[p, found[p]] for p in sorted(found)])
HOT = {"warmup": {"until": 20, "start": 0.5}}


def clock_at(progress: str, p: float) -> Clock:
    """A clock that shows `p` in one field and in the others what is wrong for every test here."""
    return Clock(percent=0.123, iterations=123, env_steps=1234, updates=12345)._replace(**{progress: p})


def at(rate: Any, p: float) -> float:
    return make_schedule(rate)(clock_at(rate["progress"], p))


@st.composite
def rates(draw: st.DrawFn, keys_of: Mapping) -> Mapping:
    """Rate of one of the kinds in `keys_of`, which draws each of its keys."""
    kind = draw(st.sampled_from(sorted(keys_of)))
    rate = {"kind": kind, "progress": "updates", **{key: draw(keys) for key, keys in keys_of[kind].items()}}
    if draw(st.booleans()):
        rate["warmup"] = {"until": draw(st.integers(1, 40)), "start": draw(VALUE)}
        if kind == "cosine":
            rate["time"] += rate["warmup"]["until"]
    return rate


def check_rate(rate: Mapping, reference: Callable[..., float], ps: Sequence[int], *, falls: bool = False) -> None:
    """The schedule equals `reference` at `ps`, in any order, and stays between its values; 0 too if it `falls`."""
    keys = {key: value for key, value in rate.items() if key not in ("kind", "progress", "warmup")}
    until, start = 0, 0.0
    if warmup := rate.get("warmup"):
        until, start = warmup["until"], warmup["start"]
    if rate["kind"] == "cosine":
        keys["begin"] = until
    schedule = make_schedule(rate)  # remembers nothing: progress may be set back
    values = [*values_of(rate), *([0.0] if falls else [])]
    for p in ps:
        expected = reference(p, **keys) if p >= until else start + (reference(until, **keys) - start) * p / until
        found = schedule(clock_at("updates", p))
        assert math.isclose(found, expected, rel_tol=1e-9, abs_tol=1e-9)
        assert min(values) - 1e-12 <= found <= max(values) + 1e-12
