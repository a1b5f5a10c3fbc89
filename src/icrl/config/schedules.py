"""Schedules of rates: learning rate, exploration, weight of an entropy bonus, ...

A rate is a number, or a mapping with a curve and the progress `p` that it depends on:

    {kind: linear, progress: percent, points: [[0, 0.001], [1, 0]], warmup: {until: 0.05, start: 0}}

`progress` is a field of `Clock`. `warmup` is optional, and so is `final` of an exponential; all other keys are required
and no others are allowed. `KINDS` has the keys of each kind, and its curve has the equation. A schedule is a pure
function of the clock, so it is correct after a run resumes.
"""

import math
import sys
from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple


class Clock(NamedTuple):
    """Progress of a run."""

    percent: float  # 0 at the start, 1 at the end of the budget
    iterations: int
    env_steps: int
    updates: int  # gradient updates


Rate = Any  # value of an option: a number, or a mapping as above
Schedule = Callable[[Clock], float]
Points = tuple[list[float], list[float]]  # times, which strictly increase, and their values
Reader = Callable[[str, Any, float], Any]  # (key, what is written there, the latest time there is) -> what it means


class Kind(NamedTuple):
    """Curve `curve(p, **keys)` with a reader for each key, which also checks it."""

    curve: Callable[..., float]
    keys: dict[str, Reader]
    optional: tuple[str, ...] = ()


def make_schedule(rate: Rate) -> Schedule:
    """Function of the clock described by `rate`.

    Raises `ValueError` with the key, its value and what is allowed."""
    if not isinstance(rate, Mapping):
        if not _is_number(rate):
            raise ValueError(f"{rate!r}: must be a finite number or a mapping with kind, progress and the kind's keys")
        value = float(rate)
        return lambda clock: value
    kind = KINDS[_one_of("kind", rate.get("kind"), KINDS)]
    progress = _one_of("progress", rate.get("progress"), Clock._fields)
    longest = 1.0 if progress == "percent" else math.inf
    readers = {"kind": _as_written, "progress": _as_written, **kind.keys, "warmup": _warmup}
    keys = _read(rate, readers, (*kind.optional, "warmup"), longest)
    del keys["kind"], keys["progress"]
    warmup = keys.pop("warmup", None)
    if warmup and kind.curve is _cosine:
        keys["begin"] = warmup["until"]
        if keys["time"] <= keys["begin"]:
            raise ValueError(f"time={rate['time']}: must be > warmup.until={rate['warmup']['until']}")
    curve = partial(kind.curve, **keys)
    if warmup:
        curve = partial(_warmed_up, own=curve, **warmup)
    return lambda clock: curve(getattr(clock, progress))


def values_of(rate: Rate) -> list[float]:
    """Values in `rate`, including the start of a warm-up but no times or decay rates.

    The schedule stays between the least and the greatest of them. Two kinds fall towards 0 instead: inverse, and
    exponential without `final`. Raises `ValueError` as `make_schedule` does."""
    make_schedule(rate)
    if not isinstance(rate, Mapping):
        return [float(rate)]
    values = [rate[key] for key in ("value", "initial", "final", "base", "bound") if key in rate]
    values += [value for _, value in rate.get("points", [])]
    if "warmup" in rate:
        values.append(rate["warmup"]["start"])
    return [float(value) for value in values]


def _between(a: float, b: float, share: float) -> float:
    return a * (1 - share) + b * share  # exact at both ends, and in [0, 1] if a and b are


def _warmed_up(p: float, own: Callable[[float], float], until: float, start: float) -> float:
    """Line from `start` at 0 to own(until), then own(p)."""
    return own(p) if p >= until else _between(start, own(until), p / until)


def _constant(p: float, value: float) -> float:
    return value


def _step(p: float, points: Points) -> float:
    """Value of the first point with p < until, so at p = until the next one; constant after the last."""
    untils, values = points
    return values[min(bisect_right(untils, p), len(values) - 1)]


def _linear(p: float, points: Points) -> float:
    """Linear interpolation between points; constant after the last."""
    times, values = points
    after = bisect_right(times, p)
    if after == len(times):
        return values[-1]
    before = after - 1
    return _between(values[before], values[after], (p - times[before]) / (times[after] - times[before]))


def _exponential(p: float, initial: float, rate: float, time: float, final: float = 0.0) -> float:
    """initial * r + final * (1 - r) with r = rate^(p / time): each `time` the distance to `final` shrinks by `rate`."""
    return _between(final, initial, rate ** (p / time))


def _inverse(p: float, initial: float, rate: float) -> float:
    """rate / (p + rate / initial), written so that it is exact at 0."""
    return initial / (1 + p * initial / rate)


def _cosine(p: float, initial: float, final: float, time: float, begin: float = 0.0) -> float:
    """Half a cosine from `initial` at `begin`, the end of a warm-up, to `final` at `time`; constant after that."""
    progress = min((p - begin) / (time - begin), 1.0)
    return _between(final, initial, (1 + math.cos(math.pi * progress)) / 2)


def _cyclical(p: float, base: float, bound: float, half_cycle: float, shape: str) -> float:
    """step: `base` for half a cycle, `bound` for the next; linear: up from `base` to `bound`, and back down."""
    phase = p % (2 * half_cycle) / half_cycle
    return _between(base, bound, SHAPES[shape](phase))


SHAPES: dict[str, Callable[[float], float]] = {"step": math.floor, "linear": lambda phase: 1 - abs(1 - phase)}


def _one_of(key: str, value: Any, allowed: Collection[str]) -> str:
    if value in tuple(allowed):
        return value
    raise ValueError(f"{key}={value}: must be one of {', '.join(allowed)}{_nearest(value, allowed)}")


def _nearest(name: Any, allowed: Collection[str]) -> str:
    near = get_close_matches(str(name), allowed, n=1)
    return f" (did you mean {near[0]}?)" if near else ""


def _read(
    mapping: Mapping[str, Any], readers: Mapping[str, Reader], optional: Collection[str], longest: float
) -> dict[str, Any]:
    """Values of `mapping` as converted by their readers. Refuses unknown keys and missing ones that are not
    optional."""
    for key in mapping:
        if key not in readers:
            raise ValueError(f"{key}: unknown key, must be one of {', '.join(readers)}{_nearest(key, readers)}")
    for key in readers:
        if key not in mapping and key not in optional:
            needed = ", ".join(key for key in readers if key not in optional)
            raise ValueError(f"{key} is missing: required are {needed}")
    return {key: readers[key](key, value, longest) for key, value in mapping.items()}


def _as_written(key: str, value: Any, longest: float) -> Any:
    return value


def _is_number(value: Any) -> bool:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and abs(value) <= sys.float_info.max  # NaN fails too, and so does an int that no float can hold


def _number(key: str, value: Any, longest: float) -> float:
    if not _is_number(value):
        raise ValueError(f"{key}={value!r}: must be a finite number")
    return float(value)


def _positive(key: str, value: Any, longest: float) -> float:
    number = _number(key, value, longest)
    if number <= 0:
        raise ValueError(f"{key}={value}: must be > 0")
    return number


def _decay(key: str, value: Any, longest: float) -> float:
    """Decay rate, at most 1: a growing curve has a `final` above its `initial` instead, and so a limit."""
    number = _positive(key, value, longest)
    if number > 1:
        raise ValueError(f"{key}={value}: must be > 0 and <= 1")
    return number


def _not_late(key: str, value: Any, longest: float) -> float:
    number = _number(key, value, longest)
    if number > longest:
        raise ValueError(f"{key}={value}: must be <= {longest:g}, since progress is percent")
    return number


def _time(key: str, value: Any, longest: float) -> float:
    _positive(key, value, longest)
    return _not_late(key, value, longest)


def _shape(key: str, value: Any, longest: float) -> str:
    return _one_of(key, value, SHAPES)


def _warmup(key: str, value: Any, longest: float) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{key}={value}: must be a mapping with until and start")
    try:
        return _read(value, {"until": _time, "start": _number}, (), longest)
    except ValueError as error:
        raise ValueError(f"{key}.{error}") from error


def _points(key: str, value: Any, longest: float) -> Points:
    if not _is_list(value) or not value or not all(_is_list(pair) and len(pair) == 2 for pair in value):
        raise ValueError(f"{key}={value}: must be a list of pairs [time, value]")
    times = [_not_late(f"{key}[{i}][0]", time, longest) for i, (time, _) in enumerate(value)]
    values = [_number(f"{key}[{i}][1]", number, longest) for i, (_, number) in enumerate(value)]
    if any(later <= time for time, later in pairwise(times)):
        raise ValueError(f"{key}={value}: times must strictly increase")
    return times, values


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _steps(key: str, value: Any, longest: float) -> Points:
    times, values = _points(key, value, longest)
    if times[0] <= 0:
        raise ValueError(f"{key}[0][0]={value[0][0]}: must be > 0")
    return times, values


def _corners(key: str, value: Any, longest: float) -> Points:
    times, values = _points(key, value, longest)
    if len(times) < 2 or times[0] != 0:
        raise ValueError(f"{key}={value}: must have at least 2 points, the first of them at 0")
    return times, values


KINDS: dict[str, Kind] = {
    "constant": Kind(_constant, {"value": _number}),
    "step": Kind(_step, {"points": _steps}),
    "linear": Kind(_linear, {"points": _corners}),
    "exponential": Kind(
        _exponential, {"initial": _number, "rate": _decay, "time": _time, "final": _number}, optional=("final",)
    ),
    "inverse": Kind(_inverse, {"initial": _positive, "rate": _positive}),
    "cosine": Kind(_cosine, {"initial": _number, "final": _number, "time": _time}),
    "cyclical": Kind(_cyclical, {"base": _number, "bound": _number, "half_cycle": _time, "shape": _shape}),
}
