"""Schedules of rates: learning rate, exploration, weight of an entropy bonus, ...

A rate is a number, or a mapping with a curve and the progress `p` that it depends on:

    {kind: linear, progress: percent, points: [[0, 0.001], [1, 0]], warmup: {until: 0.05, start: 0}}

`progress` is a field of `Clock`, and `warmup` is optional. Each kind is a function here, which takes the other keys and
has the equation. A schedule is a pure function of the clock, so it is correct after a run resumes.
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


def _between(a: float, b: float, share: float) -> float:
    return a * (1 - share) + b * share  # exact at both ends, and in [0, 1] if a and b are


def constant(*, value: Number) -> Curve:
    return lambda p: value


def step(*, points: Annotated[Points, Field(min_length=1)]) -> Curve:
    """Value of the first point with p < time, so at p = time the next one; constant after the last."""
    times, values = zip(*points, strict=True)
    if times[0] <= 0:
        raise ValueError(f"points[0][0]={times[0]:g}: must be > 0")
    return lambda p: values[min(bisect_right(times, p), len(values) - 1)]


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
        return _between(values[before], values[after], (p - times[before]) / (times[after] - times[before]))

    return curve


def exponential(
    *, initial: Number, rate: Annotated[Positive, Field(le=1)], time: Positive, final: Number = 0.0
) -> Curve:
    """initial * r + final * (1 - r) with r = rate^(p / time): each `time` the distance to `final` shrinks by `rate`. A
    growing curve has a `final` above its `initial`, and so a limit."""
    return lambda p: _between(final, initial, rate ** (p / time))


def inverse(*, initial: Positive, rate: Positive) -> Curve:
    """rate / (p + rate / initial), written so that it is exact at 0."""
    return lambda p: initial / (1 + p * initial / rate)


def cosine(*, initial: Number, final: Number, time: Positive, warmup: WarmUp | None = None) -> Curve:
    """Half a cosine from `initial` at 0 or the end of the warm-up to `final` at `time`; constant after that."""
    begin = warmup.until if warmup else 0.0
    if time <= begin:
        raise ValueError(f"time={time:g}: must be > warmup.until={begin:g}")
    return lambda p: _between(final, initial, (1 + math.cos(math.pi * min((p - begin) / (time - begin), 1.0))) / 2)


def cyclical(*, base: Number, bound: Number, half_cycle: Positive, shape: Literal["step", "linear"]) -> Curve:
    """step: `base` for half a cycle, `bound` for the next; linear: up from `base` to `bound`, and back down."""

    def curve(p: float) -> float:
        phase = p % (2 * half_cycle) / half_cycle
        return _between(base, bound, math.floor(phase) if shape == "step" else 1 - abs(1 - phase))

    return curve


_NO_PAIRS = ("list_type", "tuple_type", "too_short", "too_long", "missing")  # errors of pydantic
KINDS = {one.__name__: validate_call(one) for one in (constant, step, linear, exponential, inverse, cosine, cyclical)}


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
    times = {key: written.get(key, 0) for key in ("time", "half_cycle")}
    times |= {"warmup.until": warmup.until if warmup else 0}
    times |= {f"points[{i}][0]": point[0] for i, point in enumerate(written.get("points", []))}
    for key, time in times.items():
        if progress == "percent" and time > 1:
            raise ValueError(f"{key}={time:g}: must be <= 1, since progress is percent")

    def schedule(clock: Clock) -> float:
        p = getattr(clock, progress)
        if warmup is None or p >= warmup.until:
            return curve(p)
        return _between(warmup.start, curve(warmup.until), p / warmup.until)  # a line to the curve

    return schedule


def values_of(rate: Any) -> list[float]:
    """Values in `rate`, including the start of a warm-up but no times or decay rates.

    The schedule stays between the least and the greatest of them. Two kinds fall towards 0 instead: inverse, and
    exponential without `final`. Raises `ValueError` as `make_schedule` does."""
    make_schedule(rate)
    written = rate if isinstance(rate, dict) else {"value": rate}
    values = [written[key] for key in ("value", "initial", "final", "base", "bound") if key in written]
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
    first, kind = error.errors()[0], str(written["kind"])
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]).removeprefix(".")
    own = {name: one.default is one.empty for name, one in signature(KINDS[kind]).parameters.items()}
    keys = {"kind": True, "progress": True, **own, "warmup": False}  # with whether it is required
    if "." in where:
        keys = dict.fromkeys(WarmUp.model_fields, True)
    if first["type"] in _NO_PAIRS and first["loc"][0] == "points" and "points" in written:
        least = 2 if kind == "linear" else 1
        return f"points={written['points']!r}: must be a list of at least {least} pairs [time, value]"
    if first["type"].startswith("missing"):
        return f"{where} is missing: required are {', '.join(key for key, needed in keys.items() if needed)}"
    if first["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        return f"{where}: unknown key, must be one of {', '.join(keys)}{nearest(where.rpartition('.')[2], keys)}"
    if first["type"] == "literal_error":
        names = first["ctx"]["expected"].replace("'", "").replace(" or ", ", ").split(", ")
        return f"{where}={first['input']}: must be one of {', '.join(names)}{nearest(first['input'], names)}"
    if first["type"] == "model_type":
        return f"{where}={first['input']!r}: must be a mapping with until and start"
    reason = str(first.get("ctx", {}).get("error", first["msg"])).replace("Input should be", "must be")
    return f"{where}={first['input']!r}: {reason.replace('a valid number', 'a finite number')}" if where else reason
