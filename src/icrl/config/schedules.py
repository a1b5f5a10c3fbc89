"""Schedules of rates: learning rate, exploration, weight of an entropy bonus, ...

A rate is a number, or a mapping with a curve and the progress `p` that it depends on:

    {kind: linear, progress: percent, points: [[0, 0.001], [1, 0]], warmup: {until: 0.05, start: 0}}

`progress` is a field of `Clock`, and `warmup` is optional. Each kind is a function, which takes the other keys and has
the equation; an extension adds more. A schedule is a pure function of the clock, so it is correct after a run resumes.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from inspect import signature
from itertools import pairwise
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, Field, ValidationError, validate_call


class Clock(NamedTuple):
    """Progress of a run."""

    percent: float  # 0 at the start, 1 at the end of the budget
    iterations: int
    env_steps: int
    updates: int  # gradient updates


def _check_increasing(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    if any(later <= time for (time, _), (later, _) in pairwise(points)):
        raise ValueError("times must strictly increase")
    return points


Schedule = Callable[[Clock], float]
Curve = Callable[[float], float]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Positive = Annotated[Number, Field(gt=0)]
Points = Annotated[list[tuple[Number, Number]], AfterValidator(_check_increasing)]  # time and value of each


class WarmUp(BaseModel, extra="forbid"):
    until: Positive
    start: Number


class _Shared(BaseModel, extra="allow"):
    """Keys that all kinds have."""

    kind: str
    progress: Literal["percent", "iterations", "env_steps", "updates"]
    warmup: WarmUp | None = None


def between(a: float, b: float, share: float) -> float:
    """Number from a, at share 0, to b, at 1: exact at both ends."""
    return a * (1 - share) + b * share


def constant(*, value: Number) -> Curve:
    return lambda p: value


def linear(*, points: Annotated[Points, Field(min_length=2)]) -> Curve:
    """Linear interpolation between points; constant after the last."""
    times, values = zip(*points, strict=True)
    if times[0] != 0:
        raise ValueError(f"points[0][0]={times[0]:g}: must be 0")

    def curve(p: float) -> float:
        after = bisect_right(times, p)
        if after == len(times):
            return values[-1]
        before = after - 1
        return between(values[before], values[after], (p - times[before]) / (times[after] - times[before]))

    return curve


def cosine(*, initial: Number, final: Number, time: Positive, warmup: WarmUp | None = None) -> Curve:
    """Half a cosine from `initial` at 0 or the end of the warm-up to `final` at `time`; constant after that."""
    begin = warmup.until if warmup else 0.0
    if time <= begin:
        raise ValueError(f"time={time:g}: must be > warmup.until={begin:g}")
    return lambda p: between(final, initial, (1 + math.cos(math.pi * min((p - begin) / (time - begin), 1.0))) / 2)


KINDS: dict[str, Callable[..., Curve]] = {one.__name__: validate_call(one) for one in (constant, linear, cosine)}
_VALUES = ("value", "initial", "final", "base", "bound")  # keys that are values of a rate, beside those in `points`
_TIMES = ("time", "half_cycle")  # keys that are times


def make_schedule(rate: Any) -> Schedule:
    """Function of the clock described by `rate`.

    Raises `ValueError` with the key, its value and what is allowed."""
    written = rate if isinstance(rate, dict) else {"kind": "constant", "progress": "updates", "value": rate}
    if (name := str(written.get("kind"))) not in KINDS:
        raise ValueError(f"kind={name}: must be one of {', '.join(KINDS)}{nearest(written.get('kind', ''), KINDS)}")
    try:
        shared = _Shared.model_validate(written)
        progress, warmup, keys = shared.progress, shared.warmup, dict(shared.model_extra or {})
        if warmup and name == "cosine":
            keys["warmup"] = warmup
        curve = KINDS[name](**keys)
    except ValidationError as error:
        number = f"{rate!r}: must be a finite number or a mapping with kind, progress and the kind's keys"
        raise ValueError(_in_words(error, written) if written is rate else number) from error
    times = {key: written.get(key, 0) for key in _TIMES}
    times |= {"warmup.until": warmup.until if warmup else 0}
    times |= {f"points[{i}][0]": point[0] for i, point in enumerate(written.get("points", []))}
    for key, time in times.items():
        if progress == "percent" and time > 1:
            raise ValueError(f"{key}={time:g}: must be <= 1, since progress is percent")

    def schedule(clock: Clock) -> float:
        p = getattr(clock, progress)
        if warmup is None or p >= warmup.until:
            return curve(p)
        return between(warmup.start, curve(warmup.until), p / warmup.until)  # a line to the curve

    return schedule


def values_of(rate: Any) -> list[float]:
    """Values in `rate`, including the start of a warm-up but no times or decay rates.

    The schedule stays between the least and the greatest; one that decays may fall to 0. Raises as `make_schedule`."""
    make_schedule(rate)
    written = rate if isinstance(rate, dict) else {"value": rate}
    values = [written[key] for key in _VALUES if key in written]
    values += [value for _, value in written.get("points", [])]
    return [float(value) for value in (*values, *([rate["warmup"]["start"]] if written.get("warmup") else []))]


def needs_length(rate: Any) -> bool:
    """True if the schedule `rate` depends on the length of the run."""
    varies = isinstance(rate, dict) and (rate.get("kind") != "constant" or rate.get("warmup"))
    return bool(varies) and rate.get("progress") == "percent"


def nearest(name: object, names: Iterable[str], prefix: str = "") -> str:
    """Words that propose the nearest of `names`, written after `prefix`; empty if none is near."""
    near = get_close_matches(str(name), list(names), n=1)
    return f" (did you mean {prefix}{near[0]}?)" if near else ""


def _in_words(error: ValidationError, written: dict[str, Any]) -> str:
    """One line about the first error in the keys of a schedule."""
    first = error.errors()[0]
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]).removeprefix(".")
    if first["type"].startswith("missing"):
        return f"{where} is missing"
    if first["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        own = dict.fromkeys(["kind", "progress", *signature(KINDS[str(written["kind"])]).parameters, "warmup"])
        keys = WarmUp.model_fields if "." in where else own
        return f"{where}: unknown key, must be one of {', '.join(keys)}{nearest(where.rpartition('.')[2], keys)}"
    reason = str(first.get("ctx", {}).get("error", first["msg"])).replace("Input should be", "must be")
    return f"{where}={first['input']!r}: {reason}" if where else reason
